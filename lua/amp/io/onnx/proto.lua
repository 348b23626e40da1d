--- The messages of ONNX files: field numbers, names and kinds, and the dtypes.
-- @module amp.io.onnx.proto
local M = {}

local entry = {[1] = {'key', 'text'}, [2] = {'value', 'text'}}

M.tensor = {
  [1] = {'dims', 'int', list = true}, [2] = {'data_type', 'int'}, [3] = {'segment', 'bytes'}, [4] = {'float_data', 'float', list = true},
  [5] = {'int32_data', 'int', list = true}, [6] = {'string_data', 'bytes', list = true}, [7] = {'int64_data', 'int', list = true},
  [8] = {'name', 'text'}, [9] = {'raw_data', 'bytes'}, [10] = {'double_data', 'double', list = true},
  [11] = {'uint64_data', 'int', list = true}, [13] = {'external_data', 'message', list = true, of = entry}, [14] = {'data_location', 'int'},
}

local dim = {[1] = {'dim_value', 'int'}, [2] = {'dim_param', 'text'}}
local shape = {[1] = {'dim', 'message', list = true, of = dim}}
local tensor_type = {[1] = {'elem_type', 'int'}, [2] = {'shape', 'message', of = shape}}
local type_ = {[1] = {'tensor_type', 'message', of = tensor_type}, [4] = {'sequence_type', 'bytes'}, [5] = {'map_type', 'bytes'},
  [8] = {'sparse_tensor_type', 'bytes'}, [9] = {'optional_type', 'bytes'}}
M.value_info = {[1] = {'name', 'text'}, [2] = {'type', 'message', of = type_}, [3] = {'doc_string', 'text'}}

local attribute = {}
M.node = {
  [1] = {'input', 'text', list = true}, [2] = {'output', 'text', list = true}, [3] = {'name', 'text'}, [4] = {'op_type', 'text'},
  [5] = {'attribute', 'message', list = true, of = attribute}, [7] = {'domain', 'text'}, [8] = {'overload', 'text'},
}

M.graph = {
  [1] = {'node', 'message', list = true, of = M.node}, [2] = {'name', 'text'}, [5] = {'initializer', 'message', list = true, of = M.tensor},
  [10] = {'doc_string', 'text'}, [11] = {'input', 'message', list = true, of = M.value_info},
  [12] = {'output', 'message', list = true, of = M.value_info}, [13] = {'value_info', 'message', list = true, of = M.value_info},
  [15] = {'sparse_initializer', 'bytes', list = true},
}

attribute[1] = {'name', 'text'}
attribute[2] = {'f', 'float'}
attribute[3] = {'i', 'int'}
attribute[4] = {'s', 'text'}
attribute[5] = {'t', 'message', of = M.tensor}
attribute[6] = {'g', 'message', of = M.graph}
attribute[7] = {'floats', 'float', list = true}
attribute[8] = {'ints', 'int', list = true}
attribute[9] = {'strings', 'text', list = true}
attribute[10] = {'tensors', 'message', list = true, of = M.tensor}
attribute[11] = {'graphs', 'message', list = true, of = M.graph}
attribute[20] = {'type', 'int'}
attribute[21] = {'ref_attr_name', 'text'}
attribute[22] = {'sparse_tensor', 'bytes'}
M.attribute = attribute

--- Kinds of attributes by the number in `type`: the field that holds the value.
M.attribute_field = {[1] = 'f', [2] = 'i', [3] = 's', [4] = 't', [5] = 'g', [6] = 'floats', [7] = 'ints', [8] = 'strings', [9] = 'tensors',
  [10] = 'graphs', [11] = 'sparse_tensor'}
M.attribute_type = {}
for number, name in pairs(M.attribute_field) do M.attribute_type[name] = number end

local opset = {[1] = {'domain', 'text'}, [2] = {'version', 'int'}}
M.model = {
  [1] = {'ir_version', 'int'}, [2] = {'producer_name', 'text'}, [3] = {'producer_version', 'text'}, [4] = {'domain', 'text'},
  [5] = {'model_version', 'int'}, [6] = {'doc_string', 'text'}, [7] = {'graph', 'message', of = M.graph},
  [8] = {'opset_import', 'message', list = true, of = opset}, [14] = {'metadata_props', 'message', list = true, of = entry},
  [25] = {'functions', 'bytes', list = true},
}

--- Names of all dtypes of the format by number; those that amp has.
M.dtypes = {[1] = 'float32', [2] = 'uint8', [3] = 'int8', [4] = 'uint16', [5] = 'int16', [6] = 'int32', [7] = 'int64', [8] = 'string',
  [9] = 'bool', [10] = 'float16', [11] = 'float64', [12] = 'uint32', [13] = 'uint64', [14] = 'complex64', [15] = 'complex128', [16] = 'bfloat16'}
M.number = {}
for number, name in pairs(M.dtypes) do M.number[name] = number end
M.known = {float32 = true, float16 = true, bfloat16 = true, float64 = true, uint8 = true, int8 = true, int16 = true, int32 = true, int64 = true,
  bool = true}
M.floats = {float32 = true, float16 = true, bfloat16 = true, float64 = true}

return M
