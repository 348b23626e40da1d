---@meta amp
-- Made by examples/guide/meta.lua; never run. In .luarc.json: "workspace": { "library": ["examples/guide"] }, "runtime.version": "LuaJIT".

---@alias amp.dtype 'float64'|'float32'|'float16'|'bfloat16'|'int64'|'int32'|'int16'|'int8'|'uint8'|'bool'|'float8_e4m3'|'float8_e5m2'

---@class amp.Tensor
---@field T any
---@field data any
---@field device string
---@field dtype amp.dtype
---@field grad amp.Tensor?
---@field is_cuda boolean
---@field is_leaf boolean
---@field mT any
---@field ndim integer
---@field requires_grad boolean
---@field shape integer[]
---@operator add(amp.Tensor|number): amp.Tensor
---@operator sub(amp.Tensor|number): amp.Tensor
---@operator mul(amp.Tensor|number): amp.Tensor
---@operator div(amp.Tensor|number): amp.Tensor
---@operator pow(amp.Tensor|number): amp.Tensor
---@operator mod(amp.Tensor|number): amp.Tensor
---@operator unm: amp.Tensor
local Tensor = {}

---Absolute value.
---@return amp.Tensor
function Tensor:abs() end

---Absolute value.
---@return amp.Tensor
function Tensor:abs_() end

---Inverse cosine, in [0, pi].
---@return amp.Tensor
function Tensor:acos() end

---Inverse cosine, in [0, pi].
---@return amp.Tensor
function Tensor:acos_() end

---Inverse hyperbolic cosine.
---@return amp.Tensor
function Tensor:acosh() end

---Inverse hyperbolic cosine.
---@return amp.Tensor
function Tensor:acosh_() end

---Mean of each of output_size windows that cover the input.
---@param output_size integer|integer[]
---@param options? table or by name: output_size
---@return amp.Tensor
function Tensor:adaptive_avg_pool1d(output_size, options) end

---Mean of each of output_size windows that cover the input.
---@param output_size integer|integer[]
---@param options? table or by name: output_size
---@return amp.Tensor
function Tensor:adaptive_avg_pool2d(output_size, options) end

---Mean of each of output_size windows that cover the input.
---@param output_size integer|integer[]
---@param options? table or by name: output_size
---@return amp.Tensor
function Tensor:adaptive_avg_pool3d(output_size, options) end

---Largest value of each of output_size windows that cover the input; also its place (from 1) if asked for.
---@param output_size integer|integer[]
---@param return_indices? boolean default 0
---@param options? table or by name: output_size, return_indices
---@return amp.Tensor, amp.Tensor
function Tensor:adaptive_max_pool1d(output_size, return_indices, options) end

---Largest value of each of output_size windows that cover the input; also its place (from 1) if asked for.
---@param output_size integer|integer[]
---@param return_indices? boolean default 0
---@param options? table or by name: output_size, return_indices
---@return amp.Tensor, amp.Tensor
function Tensor:adaptive_max_pool2d(output_size, return_indices, options) end

---Largest value of each of output_size windows that cover the input; also its place (from 1) if asked for.
---@param output_size integer|integer[]
---@param return_indices? boolean default 0
---@param options? table or by name: output_size, return_indices
---@return amp.Tensor, amp.Tensor
function Tensor:adaptive_max_pool3d(output_size, return_indices, options) end

---input + alpha * other.
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:add(other, alpha, options) end

---input + alpha * other.
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:add_(other, alpha, options) end

---layer_norm(input + residual), in dtype where it is given, and input + residual.
---@param residual amp.Tensor
---@param shape integer|integer[]
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param eps? number default 1e-5
---@param dtype? amp.dtype
---@param options? table or by name: shape, weight, bias, eps, dtype
---@return amp.Tensor, amp.Tensor
function Tensor:add_layer_norm(residual, shape, weight, bias, eps, dtype, options) end

---beta * input + alpha * the sum of batch1[i] @ batch2[i].
---@param batch1 amp.Tensor
---@param batch2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function Tensor:addbmm(batch1, batch2, beta, alpha, options) end

---input + value * tensor1 / tensor2.
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function Tensor:addcdiv(tensor1, tensor2, value, options) end

---input + value * tensor1 / tensor2.
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function Tensor:addcdiv_(tensor1, tensor2, value, options) end

---input + value * tensor1 * tensor2.
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function Tensor:addcmul(tensor1, tensor2, value, options) end

---input + value * tensor1 * tensor2.
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function Tensor:addcmul_(tensor1, tensor2, value, options) end

---beta * input + alpha * mat1 @ mat2.
---@param mat1 amp.Tensor
---@param mat2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function Tensor:addmm(mat1, mat2, beta, alpha, options) end

---beta * input + alpha * mat @ vec.
---@param mat amp.Tensor
---@param vec amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function Tensor:addmv(mat, vec, beta, alpha, options) end

---beta * input + alpha * outer(vec1, vec2).
---@param vec1 amp.Tensor
---@param vec2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function Tensor:addr(vec1, vec2, beta, alpha, options) end

---The grid of an affine map, for grid_sample: theta is N x 2 x 3 or N x 3 x 4.
---@param size integer|integer[]
---@param align_corners? boolean default 0
---@param options? table or by name: size, align_corners
---@return amp.Tensor
function Tensor:affine_grid(size, align_corners, options) end

---Every element is non-zero.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function Tensor:all(dim, keepdim, options) end

---dropout that keeps mean 0 and variance 1 (for SELU networks).
---@param p? number default 0.5
---@param training? boolean default 0
---@param options? table or by name: p, training
---@return amp.Tensor
function Tensor:alpha_dropout(p, training, options) end

---Largest value over dimensions; gradient shared among equals.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function Tensor:amax(dim, keepdim, options) end

---Smallest value over dimensions; gradient shared among equals.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function Tensor:amin(dim, keepdim, options) end

---Smallest and largest value.
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function Tensor:aminmax(dim, keepdim, options) end

---Some element is non-zero.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function Tensor:any(dim, keepdim, options) end

---Index (from 1) of the largest value.
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function Tensor:argmax(dim, keepdim, options) end

---Index (from 1) of the smallest value.
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function Tensor:argmin(dim, keepdim, options) end

---Indices that sort a dimension.
---@param dim? integer default -1
---@param descending? boolean default 0
---@param stable? boolean default 0
---@param options? table or by name: dim, descending, stable
---@return amp.Tensor
function Tensor:argsort(dim, descending, stable, options) end

---A view by sizes, strides and an offset (from 0) into the storage.
---@param size integer|integer[]
---@param stride integer|integer[]
---@param offset? integer
---@param options? table or by name: size, stride, offset
---@return amp.Tensor
function Tensor:as_strided(size, stride, offset, options) end

---Inverse sine, in [-pi/2, pi/2].
---@return amp.Tensor
function Tensor:asin() end

---Inverse sine, in [-pi/2, pi/2].
---@return amp.Tensor
function Tensor:asin_() end

---Inverse hyperbolic sine.
---@return amp.Tensor
function Tensor:asinh() end

---Inverse hyperbolic sine.
---@return amp.Tensor
function Tensor:asinh_() end

---Inverse tangent, in [-pi/2, pi/2].
---@return amp.Tensor
function Tensor:atan() end

---Inverse tangent, in [-pi/2, pi/2].
---@return amp.Tensor
function Tensor:atan_() end

---Angle of the point (other, input), in (-pi, pi].
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:atan2(other) end

---Angle of the point (other, input), in (-pi, pi].
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:atan2_(other) end

---Inverse hyperbolic tangent.
---@return amp.Tensor
function Tensor:atanh() end

---Inverse hyperbolic tangent.
---@return amp.Tensor
function Tensor:atanh_() end

---Mean of each window.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default 0
---@param count_include_pad? boolean default 1
---@param options? table or by name: kernel_size, stride, padding, ceil_mode, count_include_pad
---@return amp.Tensor
function Tensor:avg_pool1d(kernel_size, stride, padding, ceil_mode, count_include_pad, options) end

---Mean of each window, or its sum over divisor_override.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default 0
---@param count_include_pad? boolean default 1
---@param divisor_override? integer
---@param options? table or by name: kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
---@return amp.Tensor
function Tensor:avg_pool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, options) end

---Mean of each window, or its sum over divisor_override.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default 0
---@param count_include_pad? boolean default 1
---@param divisor_override? integer
---@param options? table or by name: kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
---@return amp.Tensor
function Tensor:avg_pool3d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, options) end

---beta * input + alpha * batch1 @ batch2.
---@param batch1 amp.Tensor
---@param batch2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function Tensor:baddbmm(batch1, batch2, beta, alpha, options) end

---Normalise each channel (dimension 2); training updates the running statistics.
---@param running_mean? amp.Tensor
---@param running_var? amp.Tensor
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param training? boolean default 0
---@param momentum? number default 0.1
---@param eps? number default 1e-5
---@param options? table or by name: running_mean, running_var, weight, bias, training, momentum, eps
---@return amp.Tensor
function Tensor:batch_norm(running_mean, running_var, weight, bias, training, momentum, eps, options) end

---Binary cross entropy of logits, without overflow.
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param pos_weight? amp.Tensor
---@param options? table or by name: weight, reduction, pos_weight
---@return amp.Tensor
function Tensor:bce_with_logits(target, weight, reduction, pos_weight, options) end

---Fill with 1 with probability p, else 0.
---@param p? number default 0.5
---@param options? table or by name: p
---@return amp.Tensor
function Tensor:bernoulli_(p, options) end

---input1^T weight[k] input2 + bias[k] for each k; weight is out x in1 x in2.
---@param input2 amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param options? table or by name: bias
---@return amp.Tensor
function Tensor:bilinear(input2, weight, bias, options) end

---Binary cross entropy of probabilities; use bce_with_logits in float16.
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: weight, reduction
---@return amp.Tensor
function Tensor:binary_cross_entropy(target, weight, reduction, options) end

---How often each of 1, 2, ... occurs in a vector, or the sum of its weights.
---@param weights? amp.Tensor
---@param minlength? integer default 0
---@param options? table or by name: weights, minlength
---@return amp.Tensor
function Tensor:bincount(weights, minlength, options) end

---Bits that both have.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_and(other) end

---Bits that both have.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_and_(other) end

---Bits moved up by other places.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_left_shift(other) end

---Bits moved up by other places.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_left_shift_(other) end

---All bits inverted; of a boolean the other one.
---@return amp.Tensor
function Tensor:bitwise_not() end

---All bits inverted; of a boolean the other one.
---@return amp.Tensor
function Tensor:bitwise_not_() end

---Bits that either has.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_or(other) end

---Bits that either has.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_or_(other) end

---Bits moved down by other places, the sign kept.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_right_shift(other) end

---Bits moved down by other places, the sign kept.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_right_shift_(other) end

---Bits that just one has.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_xor(other) end

---Bits that just one has.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:bitwise_xor_(other) end

---Products of two batches of matrices.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:bmm(other) end

---The number (from 1) of the bucket between sorted boundaries that each value falls into.
---@param boundaries amp.Tensor
---@param right? boolean default 0
---@param options? table or by name: right
---@return amp.Tensor
function Tensor:bucketize(boundaries, right, options) end

---Cube root.
---@return amp.Tensor
function Tensor:cbrt() end

---Cube root.
---@return amp.Tensor
function Tensor:cbrt_() end

---p-norms of the differences of each row of x1 and each of x2.
---@param x2 amp.Tensor
---@param p? number default 2
---@param compute_mode? 'use_mm_for_euclid_dist_if_necessary'|'use_mm_for_euclid_dist'|'donot_use_mm_for_euclid_dist' default 0
---@param options? table or by name: p, compute_mode
---@return amp.Tensor
function Tensor:cdist(x2, p, compute_mode, options) end

---Round up.
---@return amp.Tensor
function Tensor:ceil() end

---Round up.
---@return amp.Tensor
function Tensor:ceil_() end

---input where positive, else alpha * (exp(input / alpha) - 1).
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:celu(alpha, options) end

---input where positive, else alpha * (exp(input / alpha) - 1).
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:celu_(alpha, options) end

---Channels (dimension 2) dealt out to groups in turn.
---@param groups integer
---@param options? table or by name: groups
---@return amp.Tensor
function Tensor:channel_shuffle(groups, options) end

---L of input = L L^T (upper: U^T U) for a symmetric positive-definite matrix, of which one triangle is read.
---@param upper? boolean default 0
---@param options? table or by name: upper
---@return amp.Tensor
function Tensor:cholesky(upper, options) end

---Inverse of A, given its Cholesky factor.
---@param upper? boolean default 0
---@param options? table or by name: upper
---@return amp.Tensor
function Tensor:cholesky_inverse(upper, options) end

---X of A X = input, given the Cholesky factor L of A.
---@param L amp.Tensor
---@param upper? boolean default 0
---@param options? table or by name: upper
---@return amp.Tensor
function Tensor:cholesky_solve(L, upper, options) end

---Values limited to [min, max].
---@param min? number
---@param max? number
---@param options? table or by name: min, max
---@return amp.Tensor
function Tensor:clamp(min, max, options) end

---Values limited to [min, max].
---@param min? number
---@param max? number
---@param options? table or by name: min, max
---@return amp.Tensor
function Tensor:clamp_(min, max, options) end

---Values not above max.
---@param max number
---@param options? table or by name: max
---@return amp.Tensor
function Tensor:clamp_max(max, options) end

---Values not above max.
---@param max number
---@param options? table or by name: max
---@return amp.Tensor
function Tensor:clamp_max_(max, options) end

---Values not below min.
---@param min number
---@param options? table or by name: min
---@return amp.Tensor
function Tensor:clamp_min(min, options) end

---Values not below min.
---@param min number
---@param options? table or by name: min
---@return amp.Tensor
function Tensor:clamp_min_(min, options) end

---A copy with its own storage.
---@param memory_format? 'preserve'|'contiguous'|'channels_last' default 0
---@param options? table or by name: memory_format
---@return amp.Tensor
function Tensor:clone(memory_format, options) end

---Columns of windows added back into an image of output_size.
---@param output_size integer|integer[]
---@param kernel_size integer|integer[]
---@param dilation? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param stride? integer|integer[] default 1
---@param options? table or by name: output_size, kernel_size, dilation, padding, stride
---@return amp.Tensor
function Tensor:col2im(output_size, kernel_size, dilation, padding, stride, options) end

---Condition number: norm of input times norm of its inverse, in the matrix norm p.
---@param p? number default 2
---@param options? table or by name: p
---@return amp.Tensor
function Tensor:cond(p, options) end

---The tensor itself if its layout is the asked one, else a copy.
---@param memory_format? 'contiguous'|'channels_last' default 0
---@param options? table or by name: memory_format
---@return amp.Tensor
function Tensor:contiguous(memory_format, options) end

---1-d cross-correlation; weight is out x in/groups x kL.
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@param options? table or by name: bias, stride, padding, dilation, groups
---@return amp.Tensor
function Tensor:conv1d(weight, bias, stride, padding, dilation, groups, options) end

---2-d cross-correlation; weight is out x in/groups x kH x kW.
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@param options? table or by name: bias, stride, padding, dilation, groups
---@return amp.Tensor
function Tensor:conv2d(weight, bias, stride, padding, dilation, groups, options) end

---3-d cross-correlation; weight is out x in/groups x kD x kH x kW.
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@param options? table or by name: bias, stride, padding, dilation, groups
---@return amp.Tensor
function Tensor:conv3d(weight, bias, stride, padding, dilation, groups, options) end

---conv1d of time x batch x in; weight is kernel x in x out.
---@param weight amp.Tensor
---@param bias amp.Tensor
---@param pad? integer default 0
---@param options? table or by name: pad
---@return amp.Tensor
function Tensor:conv_tbc(weight, bias, pad, options) end

---Gradient of conv1d in its input, as an op of its own; weight is in x out/groups x kL.
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@param options? table or by name: bias, stride, padding, output_padding, groups, dilation
---@return amp.Tensor
function Tensor:conv_transpose1d(weight, bias, stride, padding, output_padding, groups, dilation, options) end

---Gradient of conv2d in its input, as an op of its own; weight is in x out/groups x kH x kW.
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@param options? table or by name: bias, stride, padding, output_padding, groups, dilation
---@return amp.Tensor
function Tensor:conv_transpose2d(weight, bias, stride, padding, output_padding, groups, dilation, options) end

---Gradient of conv3d in its input, as an op of its own; weight is in x out/groups x kD x kH x kW.
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@param options? table or by name: bias, stride, padding, output_padding, groups, dilation
---@return amp.Tensor
function Tensor:conv_transpose3d(weight, bias, stride, padding, output_padding, groups, dilation, options) end

---Copy src into the receiver, broadcast and cast to its dtype.
---@param src amp.Tensor
---@return amp.Tensor
function Tensor:copy_(src) end

---The size of input with the sign of other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:copysign(other) end

---The size of input with the sign of other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:copysign_(other) end

---Cosine of radians.
---@return amp.Tensor
function Tensor:cos() end

---Cosine of radians.
---@return amp.Tensor
function Tensor:cos_() end

---Hyperbolic cosine.
---@return amp.Tensor
function Tensor:cosh() end

---Hyperbolic cosine.
---@return amp.Tensor
function Tensor:cosh_() end

---1 - cosine of rows whose target is 1, max(0, cosine - margin) of those whose target is -1.
---@param input2 amp.Tensor
---@param target amp.Tensor
---@param margin? number default 0
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, reduction
---@return amp.Tensor
function Tensor:cosine_embedding_loss(input2, target, margin, reduction, options) end

---Cosine of the angle between x1 and x2 along a dimension, norms being at least eps.
---@param x2 amp.Tensor
---@param dim? integer default 2
---@param eps? number default 1e-8
---@param options? table or by name: dim, eps
---@return amp.Tensor
function Tensor:cosine_similarity(x2, dim, eps, options) end

---How many elements are not zero.
---@param dim? integer|integer[]
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:count_nonzero(dim, options) end

---Vector product along a dimension of size 3 (the first such if none is given).
---@param other amp.Tensor
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:cross(other, dim, options) end

---Cross entropy of logits and labels (1..C along dimension 2) or probabilities.
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param ignore_index? integer default -100
---@param reduction? 'none'|'mean'|'sum' default 1
---@param label_smoothing? number default 0
---@param options? table or by name: weight, ignore_index, reduction, label_smoothing
---@return amp.Tensor
function Tensor:cross_entropy(target, weight, ignore_index, reduction, label_smoothing, options) end

---Negative log-likelihood of label sequences under all alignments; log_probs is T x N x C.
---@param targets amp.Tensor
---@param input_lengths amp.Tensor
---@param target_lengths amp.Tensor
---@param blank? integer default 1
---@param reduction? 'none'|'mean'|'sum' default 1
---@param zero_infinity? boolean default 0
---@param options? table or by name: blank, reduction, zero_infinity
---@return amp.Tensor
function Tensor:ctc_loss(targets, input_lengths, target_lengths, blank, reduction, zero_infinity, options) end

---The largest value so far along a dimension, and the index of its last place.
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor, amp.Tensor
function Tensor:cummax(dim, options) end

---The smallest value so far along a dimension, and the index of its last place.
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor, amp.Tensor
function Tensor:cummin(dim, options) end

---Running products along a dimension.
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function Tensor:cumprod(dim, dtype, options) end

---Running sums along a dimension.
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function Tensor:cumsum(dim, dtype, options) end

---Determinant.
---@return amp.Tensor
function Tensor:det() end

---A vector as a matrix's diagonal, or a matrix's diagonal as a vector.
---@param diagonal? integer default 0
---@param options? table or by name: diagonal
---@return amp.Tensor
function Tensor:diag(diagonal, options) end

---The last dimension as the diagonal of two dimensions, zeros elsewhere.
---@param offset? integer default 0
---@param dim1? integer default -2
---@param dim2? integer default -1
---@param options? table or by name: offset, dim1, dim2
---@return amp.Tensor
function Tensor:diag_embed(offset, dim1, dim2, options) end

---A diagonal, as the last dimension.
---@param offset? integer default 0
---@param dim1? integer default 1
---@param dim2? integer default 2
---@param options? table or by name: offset, dim1, dim2
---@return amp.Tensor
function Tensor:diagonal(offset, dim1, dim2, options) end

---Differences of neighbours, n times.
---@param n? integer default 1
---@param dim? integer default -1
---@param prepend? amp.Tensor
---@param append? amp.Tensor
---@param options? table or by name: n, dim, prepend, append
---@return amp.Tensor
function Tensor:diff(n, dim, prepend, append, options) end

---Derivative of lgamma.
---@return amp.Tensor
function Tensor:digamma() end

---Derivative of lgamma.
---@return amp.Tensor
function Tensor:digamma_() end

---p-norm of input - other.
---@param other amp.Tensor
---@param p? number default 2
---@param options? table or by name: p
---@return amp.Tensor
function Tensor:dist(other, p, options) end

---input / other; integers give float32.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:div(other) end

---input / other; integers give float32.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:div_(other) end

---Inner product of two vectors.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:dot(other) end

---Zero elements with probability p, scale the others by 1 / (1 - p).
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function Tensor:dropout(p, training, options) end

---Zero elements with probability p, scale the others by 1 / (1 - p).
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function Tensor:dropout_(p, training, options) end

---dropout of whole channels of N x C x L or C x L.
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function Tensor:dropout1d(p, training, options) end

---dropout of whole channels of N x C x H x W.
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function Tensor:dropout2d(p, training, options) end

---dropout of whole channels of N x C x D x H x W or C x D x H x W.
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function Tensor:dropout3d(p, training, options) end

---Eigenvalues (rising) and eigenvectors (columns) of a symmetric matrix, of which one triangle is read.
---@param UPLO? 'L'|'U' default 0
---@param options? table or by name: UPLO
---@return amp.Tensor, amp.Tensor
function Tensor:eigh(UPLO, options) end

---Eigenvalues (rising) of a symmetric matrix, of which one triangle is read.
---@param UPLO? 'L'|'U' default 0
---@param options? table or by name: UPLO
---@return amp.Tensor
function Tensor:eigvalsh(UPLO, options) end

---input where positive, else alpha * (exp(input) - 1).
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:elu(alpha, options) end

---input where positive, else alpha * (exp(input) - 1).
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:elu_(alpha, options) end

---Rows of weight by index; the row padding_idx gets no gradient.
---@param weight amp.Tensor
---@param padding_idx? integer
---@param options? table or by name: padding_idx
---@return amp.Tensor
function Tensor:embedding(weight, padding_idx, options) end

---Sums, means or maxima of rows of weight by bags of indices; offsets (from 1) say where bags start in a vector.
---@param weight amp.Tensor
---@param offsets? amp.Tensor
---@param mode? 'sum'|'mean'|'max' default 1
---@param per_sample_weights? amp.Tensor
---@param include_last_offset? boolean default 0
---@param padding_idx? integer
---@param options? table or by name: offsets, mode, per_sample_weights, include_last_offset, padding_idx
---@return amp.Tensor
function Tensor:embedding_bag(weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx, options) end

---Element-wise equality.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:eq(other) end

---Error function.
---@return amp.Tensor
function Tensor:erf() end

---Error function.
---@return amp.Tensor
function Tensor:erf_() end

---1 - erf(input), exact for large input.
---@return amp.Tensor
function Tensor:erfc() end

---1 - erf(input), exact for large input.
---@return amp.Tensor
function Tensor:erfc_() end

---Inverse error function.
---@return amp.Tensor
function Tensor:erfinv() end

---Inverse error function.
---@return amp.Tensor
function Tensor:erfinv_() end

---e to the input.
---@return amp.Tensor
function Tensor:exp() end

---e to the input.
---@return amp.Tensor
function Tensor:exp_() end

---2 to the input.
---@return amp.Tensor
function Tensor:exp2() end

---2 to the input.
---@return amp.Tensor
function Tensor:exp2_() end

---Dimensions of size 1 repeated without a copy; -1 keeps a size.
---@param shape integer|integer[]
---@param options? table or by name: shape
---@return amp.Tensor
function Tensor:expand(shape, options) end

---e to the input, minus 1, exact near 0.
---@return amp.Tensor
function Tensor:expm1() end

---e to the input, minus 1, exact near 0.
---@return amp.Tensor
function Tensor:expm1_() end

---Fill with exponentially distributed values of rate lambd.
---@param lambd? number default 1
---@param options? table or by name: lambd
---@return amp.Tensor
function Tensor:exponential_(lambd, options) end

---alpha_dropout of whole channels.
---@param p? number default 0.5
---@param training? boolean default 0
---@param options? table or by name: p, training
---@return amp.Tensor
function Tensor:feature_alpha_dropout(p, training, options) end

---Discrete Fourier transform of a complex tensor (last dimension real, imaginary), or with real of a real one.
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: n, dim, norm, real
---@return amp.Tensor
function Tensor:fft(n, dim, norm, real, options) end

---fft over two dimensions, the last ones unless dim says otherwise.
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function Tensor:fft2(s, dim, norm, real, options) end

---fft over several dimensions (all if neither s nor dim is given).
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function Tensor:fftn(s, dim, norm, real, options) end

---Frequency 0 moved to the middle of dimensions (all if none is given); complex: the last dimension stays.
---@param dim? integer|integer[]
---@param complex? boolean default 0
---@param options? table or by name: dim, complex
---@return amp.Tensor
function Tensor:fftshift(dim, complex, options) end

---Fill with a value.
---@param value number
---@param options? table or by name: value
---@return amp.Tensor
function Tensor:fill_(value, options) end

---Dimensions start_dim..end_dim joined into one.
---@param start_dim? integer default 1
---@param end_dim? integer default -1
---@param options? table or by name: start_dim, end_dim
---@return amp.Tensor
function Tensor:flatten(start_dim, end_dim, options) end

---Dimensions reversed (a copy).
---@param dims integer|integer[]
---@param options? table or by name: dims
---@return amp.Tensor
function Tensor:flip(dims, options) end

---Dimension 2 reversed.
---@return amp.Tensor
function Tensor:fliplr() end

---Dimension 1 reversed.
---@return amp.Tensor
function Tensor:flipud() end

---Round down.
---@return amp.Tensor
function Tensor:floor() end

---Round down.
---@return amp.Tensor
function Tensor:floor_() end

---input / other, rounded down.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:floor_divide(other) end

---input / other, rounded down.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:floor_divide_(other) end

---Remainder with the sign of input, as C's fmod.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:fmod(other) end

---Remainder with the sign of input, as C's fmod.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:fmod_(other) end

---What trunc takes away.
---@return amp.Tensor
function Tensor:frac() end

---What trunc takes away.
---@return amp.Tensor
function Tensor:frac_() end

---Gamma function.
---@return amp.Tensor
function Tensor:gamma() end

---Gamma function.
---@return amp.Tensor
function Tensor:gamma_() end

---out[i][j] = input[index[i][j]][j] for dim 1, and so on.
---@param dim integer
---@param index amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:gather(dim, index, options) end

---Negative log-likelihood of normal variables of mean input and variance var.
---@param target amp.Tensor
---@param var amp.Tensor|number
---@param full? boolean default 0
---@param eps? number default 1e-6
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: full, eps, reduction
---@return amp.Tensor
function Tensor:gaussian_nll_loss(target, var, full, eps, reduction, options) end

---input >= other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:ge(other) end

---x times the normal distribution function of x.
---@param approximate? 'none'|'tanh' default 0
---@param options? table or by name: approximate
---@return amp.Tensor
function Tensor:gelu(approximate, options) end

---First half of a dimension times the sigmoid of the second.
---@param dim? integer default -1
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:glu(dim, options) end

---input read at the places of grid: (x, y) or (x, y, z) from -1 to 1 across the input.
---@param grid amp.Tensor
---@param mode? 'bilinear'|'nearest'|'bicubic' default 0
---@param padding_mode? 'zeros'|'border'|'reflection' default 0
---@param align_corners? boolean default 0
---@param options? table or by name: mode, padding_mode, align_corners
---@return amp.Tensor
function Tensor:grid_sample(grid, mode, padding_mode, align_corners, options) end

---Normalise each of num_groups groups of channels (dimension 2) of each sample.
---@param num_groups integer
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param eps? number default 1e-5
---@param options? table or by name: num_groups, weight, bias, eps
---@return amp.Tensor
function Tensor:group_norm(num_groups, weight, bias, eps, options) end

---Layers of GRUs over a sequence; gives the results and the last states.
---@param hx amp.Tensor
---@param weights amp.Tensor[]
---@param num_layers? integer default 1
---@param bias? boolean default 1
---@param batch_first? boolean default 0
---@param bidirectional? boolean default 0
---@param dropout? number default 0
---@param training? boolean default 0
---@param packed? boolean default 0
---@param options? table or by name: num_layers, bias, batch_first, bidirectional, dropout, training, packed
---@return amp.Tensor, amp.Tensor
function Tensor:gru(hx, weights, num_layers, bias, batch_first, bidirectional, dropout, training, packed, options) end

---One step of a GRU.
---@param hx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor
function Tensor:gru_cell(hx, w_ih, w_hh, b_ih, b_hh, options) end

---input > other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:gt(other) end

---0 where abs(input) <= lambd.
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function Tensor:hardshrink(lambd, options) end

---0 where abs(input) <= lambd.
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function Tensor:hardshrink_(lambd, options) end

---input / 6 + 1/2, limited to [0, 1].
---@return amp.Tensor
function Tensor:hardsigmoid() end

---input / 6 + 1/2, limited to [0, 1].
---@return amp.Tensor
function Tensor:hardsigmoid_() end

---input * hardsigmoid(input).
---@return amp.Tensor
function Tensor:hardswish() end

---input * hardsigmoid(input).
---@return amp.Tensor
function Tensor:hardswish_() end

---Values limited to [min_val, max_val].
---@param min_val? number default -1
---@param max_val? number default 1
---@param options? table or by name: min_val, max_val
---@return amp.Tensor
function Tensor:hardtanh(min_val, max_val, options) end

---Values limited to [min_val, max_val].
---@param min_val? number default -1
---@param max_val? number default 1
---@param options? table or by name: min_val, max_val
---@return amp.Tensor
function Tensor:hardtanh_(min_val, max_val, options) end

---input where target is 1, max(0, margin - input) where it is -1.
---@param target amp.Tensor
---@param margin? number default 1
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, reduction
---@return amp.Tensor
function Tensor:hinge_embedding_loss(target, margin, reduction, options) end

---Counts of the elements in equal bins from min to max (the extremes of input if both are 0).
---@param bins? integer default 100
---@param min? number default 0
---@param max? number default 0
---@param options? table or by name: bins, min, max
---@return amp.Tensor
function Tensor:histc(bins, min, max, options) end

---Half the square where input and target differ by less than delta, else a line of that slope, averaged.
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param delta? number default 1
---@param options? table or by name: reduction, delta
---@return amp.Tensor
function Tensor:huber_loss(target, reduction, delta, options) end

---Square root of input^2 + other^2, without overflow.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:hypot(other) end

---Square root of input^2 + other^2, without overflow.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:hypot_(other) end

---Inverse of fft.
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: n, dim, norm, real
---@return amp.Tensor
function Tensor:ifft(n, dim, norm, real, options) end

---Inverse of fft2.
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function Tensor:ifft2(s, dim, norm, real, options) end

---Inverse of fftn.
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function Tensor:ifftn(s, dim, norm, real, options) end

---Inverse of fftshift.
---@param dim? integer|integer[]
---@param complex? boolean default 0
---@param options? table or by name: dim, complex
---@return amp.Tensor
function Tensor:ifftshift(dim, complex, options) end

---Windows of an image as columns: N x C kH kW x windows.
---@param kernel_size integer|integer[]
---@param dilation? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param stride? integer|integer[] default 1
---@param options? table or by name: kernel_size, dilation, padding, stride
---@return amp.Tensor
function Tensor:im2col(kernel_size, dilation, padding, stride, options) end

---input with alpha * src added at indices of a dimension.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: dim, alpha
---@return amp.Tensor
function Tensor:index_add(dim, index, src, alpha, options) end

---input with alpha * src added at indices of a dimension.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: dim, alpha
---@return amp.Tensor
function Tensor:index_add_(dim, index, src, alpha, options) end

---A copy of input with source written at indices of a dimension.
---@param dim integer
---@param index amp.Tensor
---@param source amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:index_copy(dim, index, source, options) end

---A copy of input with source written at indices of a dimension.
---@param dim integer
---@param index amp.Tensor
---@param source amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:index_copy_(dim, index, source, options) end

---A copy of input with a value at indices of a dimension.
---@param dim integer
---@param index amp.Tensor
---@param value number
---@param options? table or by name: dim, value
---@return amp.Tensor
function Tensor:index_fill(dim, index, value, options) end

---A copy of input with a value at indices of a dimension.
---@param dim integer
---@param index amp.Tensor
---@param value number
---@param options? table or by name: dim, value
---@return amp.Tensor
function Tensor:index_fill_(dim, index, value, options) end

---A copy of input with values at index tensors.
---@param indices amp.Tensor[]
---@param values amp.Tensor
---@param accumulate? boolean default 0
---@param dims integer|integer[]
---@param options? table or by name: accumulate, dims
---@return amp.Tensor
function Tensor:index_put(indices, values, accumulate, dims, options) end

---A copy of input with values at index tensors.
---@param indices amp.Tensor[]
---@param values amp.Tensor
---@param accumulate? boolean default 0
---@param dims integer|integer[]
---@param options? table or by name: accumulate, dims
---@return amp.Tensor
function Tensor:index_put_(indices, values, accumulate, dims, options) end

---Elements of a dimension by a vector of indices.
---@param dim integer
---@param index amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:index_select(dim, index, options) end

---Inner products along the last dimensions of both.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:inner(other) end

---Normalise each channel (dimension 2) of each sample, by its own statistics or the running ones.
---@param running_mean? amp.Tensor
---@param running_var? amp.Tensor
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param use_input_stats? boolean default 1
---@param momentum? number default 0.1
---@param eps? number default 1e-5
---@param options? table or by name: running_mean, running_var, weight, bias, use_input_stats, momentum, eps
---@return amp.Tensor
function Tensor:instance_norm(running_mean, running_var, weight, bias, use_input_stats, momentum, eps, options) end

---The spatial dimensions resampled to a size or by a factor.
---@param size? integer|integer[]
---@param scale_factor? number[]
---@param mode? 'nearest'|'linear'|'bilinear'|'bicubic'|'trilinear'|'area'|'nearest-exact' default 0
---@param align_corners? boolean
---@param recompute_scale_factor? boolean
---@param antialias? boolean default 0
---@param options? table or by name: size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
---@return amp.Tensor
function Tensor:interpolate(size, scale_factor, mode, align_corners, recompute_scale_factor, antialias, options) end

---Inverse of a square matrix; an error where it is singular.
---@return amp.Tensor
function Tensor:inverse() end

---Inverse of rfft: n real values (twice the size less 2 if n is not given).
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: n, dim, norm
---@return amp.Tensor
function Tensor:irfft(n, dim, norm, options) end

---Inverse of rfft2.
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function Tensor:irfft2(s, dim, norm, options) end

---Inverse of rfftn.
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function Tensor:irfftn(s, dim, norm, options) end

---abs(input - other) <= atol + rtol * abs(other).
---@param other amp.Tensor
---@param rtol? number default 1e-5
---@param atol? number default 1e-8
---@param equal_nan? boolean default 0
---@param options? table or by name: rtol, atol, equal_nan
---@return amp.Tensor
function Tensor:isclose(other, rtol, atol, equal_nan, options) end

---Is neither NaN nor infinite.
---@return amp.Tensor
function Tensor:isfinite() end

---Whether each element is one of the test elements.
---@param test_elements amp.Tensor|number
---@param assume_unique? boolean default 0
---@param invert? boolean default 0
---@param options? table or by name: assume_unique, invert
---@return amp.Tensor
function Tensor:isin(test_elements, assume_unique, invert, options) end

---Is infinite.
---@return amp.Tensor
function Tensor:isinf() end

---Is NaN.
---@return amp.Tensor
function Tensor:isnan() end

---target * (log(target) - input), input being log-probabilities.
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum'|'batchmean' default 1
---@param log_target? boolean default 0
---@param options? table or by name: reduction, log_target
---@return amp.Tensor
function Tensor:kl_div(target, reduction, log_target, options) end

---Kronecker product.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:kron(other) end

---The k-th smallest value of a dimension, and its index.
---@param k integer
---@param dim? integer default -1
---@param keepdim? boolean default 0
---@param options? table or by name: k, dim, keepdim
---@return amp.Tensor, amp.Tensor
function Tensor:kthvalue(k, dim, keepdim, options) end

---Absolute difference, averaged.
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function Tensor:l1_loss(target, reduction, options) end

---Normalise over the last dimensions, which have the given shape.
---@param shape integer|integer[]
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param eps? number default 1e-5
---@param options? table or by name: shape, weight, bias, eps
---@return amp.Tensor
function Tensor:layer_norm(shape, weight, bias, eps, options) end

---input <= other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:le(other) end

---input where positive, else negative_slope * input.
---@param negative_slope? number default 0.01
---@param options? table or by name: negative_slope
---@return amp.Tensor
function Tensor:leaky_relu(negative_slope, options) end

---input where positive, else negative_slope * input.
---@param negative_slope? number default 0.01
---@param options? table or by name: negative_slope
---@return amp.Tensor
function Tensor:leaky_relu_(negative_slope, options) end

---input + weight * (end - input).
---@param end_ amp.Tensor
---@param weight amp.Tensor|number
---@return amp.Tensor
function Tensor:lerp(end_, weight) end

---input + weight * (end - input).
---@param end_ amp.Tensor
---@param weight amp.Tensor|number
---@return amp.Tensor
function Tensor:lerp_(end_, weight) end

---log of the absolute value of the gamma function.
---@return amp.Tensor
function Tensor:lgamma() end

---log of the absolute value of the gamma function.
---@return amp.Tensor
function Tensor:lgamma_() end

---input @ weight^T + bias; weight is out x in.
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param options? table or by name: bias
---@return amp.Tensor
function Tensor:linear(weight, bias, options) end

---input over (k + alpha * mean of the squares of size neighbouring channels)^beta.
---@param size integer
---@param alpha? number default 1e-4
---@param beta? number default 0.75
---@param k? number default 1
---@param options? table or by name: size, alpha, beta, k
---@return amp.Tensor
function Tensor:local_response_norm(size, alpha, beta, k, options) end

---Natural logarithm.
---@return amp.Tensor
function Tensor:log() end

---Natural logarithm.
---@return amp.Tensor
function Tensor:log_() end

---Logarithm to base 10.
---@return amp.Tensor
function Tensor:log10() end

---Logarithm to base 10.
---@return amp.Tensor
function Tensor:log10_() end

---log(1 + input), exact near 0.
---@return amp.Tensor
function Tensor:log1p() end

---log(1 + input), exact near 0.
---@return amp.Tensor
function Tensor:log1p_() end

---Logarithm to base 2.
---@return amp.Tensor
function Tensor:log2() end

---Logarithm to base 2.
---@return amp.Tensor
function Tensor:log2_() end

---log(sigmoid(input)) without overflow.
---@return amp.Tensor
function Tensor:log_sigmoid() end

---log of softmax, without overflow.
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function Tensor:log_softmax(dim, dtype, options) end

---log(exp(input) + exp(other)), without overflow.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:logaddexp(other) end

---log of the running sums of exp along a dimension, without overflow.
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:logcumsumexp(dim, options) end

---Logarithm of the determinant; NaN where it is negative.
---@return amp.Tensor
function Tensor:logdet() end

---Both are non-zero.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:logical_and(other) end

---Is zero.
---@return amp.Tensor
function Tensor:logical_not() end

---Either is non-zero.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:logical_or(other) end

---Just one is non-zero.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:logical_xor(other) end

---log(input / (1 - input)), input first limited to [eps, 1 - eps].
---@param eps? number
---@param options? table or by name: eps
---@return amp.Tensor
function Tensor:logit(eps, options) end

---log(input / (1 - input)), input first limited to [eps, 1 - eps].
---@param eps? number
---@param options? table or by name: eps
---@return amp.Tensor
function Tensor:logit_(eps, options) end

---log of the sum of exp, without overflow.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function Tensor:logsumexp(dim, keepdim, options) end

---p-norm of each window, p being norm_type.
---@param norm_type number
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param ceil_mode? boolean default 0
---@param options? table or by name: norm_type, kernel_size, stride, ceil_mode
---@return amp.Tensor
function Tensor:lp_pool1d(norm_type, kernel_size, stride, ceil_mode, options) end

---p-norm of each window, p being norm_type.
---@param norm_type number
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param ceil_mode? boolean default 0
---@param options? table or by name: norm_type, kernel_size, stride, ceil_mode
---@return amp.Tensor
function Tensor:lp_pool2d(norm_type, kernel_size, stride, ceil_mode, options) end

---p-norm of each window, p being norm_type.
---@param norm_type number
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param ceil_mode? boolean default 0
---@param options? table or by name: norm_type, kernel_size, stride, ceil_mode
---@return amp.Tensor
function Tensor:lp_pool3d(norm_type, kernel_size, stride, ceil_mode, options) end

---Layers of LSTMs over a sequence; gives the results, the last h and the last c.
---@param hx amp.Tensor
---@param cx amp.Tensor
---@param weights amp.Tensor[]
---@param num_layers? integer default 1
---@param bias? boolean default 1
---@param batch_first? boolean default 0
---@param bidirectional? boolean default 0
---@param dropout? number default 0
---@param training? boolean default 0
---@param packed? boolean default 0
---@param proj_size? integer default 0
---@param options? table or by name: num_layers, bias, batch_first, bidirectional, dropout, training, packed, proj_size
---@return amp.Tensor, amp.Tensor, amp.Tensor
function Tensor:lstm(hx, cx, weights, num_layers, bias, batch_first, bidirectional, dropout, training, packed, proj_size, options) end

---One step of an LSTM; gives the new h and c.
---@param hx amp.Tensor
---@param cx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor, amp.Tensor
function Tensor:lstm_cell(hx, cx, w_ih, w_hh, b_ih, b_hh, options) end

---The smallest X that makes A X - B smallest, and, if A has more rows than columns, the sums of squares left in each column.
---@param B amp.Tensor
---@param rcond? number
---@param options? table or by name: rcond
---@return amp.Tensor, amp.Tensor
function Tensor:lstsq(B, rcond, options) end

---input < other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:lt(other) end

---max(0, margin - target * (input1 - input2)), targets being 1 or -1.
---@param input2 amp.Tensor
---@param target amp.Tensor
---@param margin? number default 0
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, reduction
---@return amp.Tensor
function Tensor:margin_ranking_loss(input2, target, margin, reduction, options) end

---value where mask is true. An error if value does not fit the dtype.
---@param mask amp.Tensor
---@param value number
---@param options? table or by name: value
---@return amp.Tensor
function Tensor:masked_fill(mask, value, options) end

---value where mask is true. An error if value does not fit the dtype.
---@param mask amp.Tensor
---@param value number
---@param options? table or by name: value
---@return amp.Tensor
function Tensor:masked_fill_(mask, value, options) end

---A copy of input with the elements of source, in order, where mask is true.
---@param mask amp.Tensor
---@param source amp.Tensor
---@return amp.Tensor
function Tensor:masked_scatter(mask, source) end

---A copy of input with the elements of source, in order, where mask is true.
---@param mask amp.Tensor
---@param source amp.Tensor
---@return amp.Tensor
function Tensor:masked_scatter_(mask, source) end

---The elements where mask is true, as a vector.
---@param mask amp.Tensor
---@return amp.Tensor
function Tensor:masked_select(mask) end

---Matrix product; batches broadcast; vectors as in PyTorch.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:matmul(other) end

---Exponential of a square matrix.
---@return amp.Tensor
function Tensor:matrix_exp() end

---Norm of matrices in two dimensions (the last ones if none are given): Frobenius without ord, 0: nuclear, 1 and infinity: largest sum of a column and of a row, 2: spectral; negative: smallest.
---@param ord? number
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: ord, dim, keepdim, dtype
---@return amp.Tensor
function Tensor:matrix_norm(ord, dim, keepdim, dtype, options) end

---n-th power of a square matrix; a negative n takes the inverse.
---@param n integer
---@param options? table or by name: n
---@return amp.Tensor
function Tensor:matrix_power(n, options) end

---Number of singular values above atol and rtol times the largest.
---@param atol? number
---@param rtol? number
---@param hermitian? boolean default 0
---@param options? table or by name: atol, rtol, hermitian
---@return amp.Tensor
function Tensor:matrix_rank(atol, rtol, hermitian, options) end

---Largest value; with a dimension also its index (from 1).
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function Tensor:max(dim, keepdim, options) end

---Largest value of each window; also its place (from 1) if asked for.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default 0
---@param return_indices? boolean default 0
---@param options? table or by name: kernel_size, stride, padding, dilation, ceil_mode, return_indices
---@return amp.Tensor, amp.Tensor
function Tensor:max_pool1d(kernel_size, stride, padding, dilation, ceil_mode, return_indices, options) end

---Largest value of each window; also its place (from 1, in the flattened plane) if asked for.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default 0
---@param return_indices? boolean default 0
---@param options? table or by name: kernel_size, stride, padding, dilation, ceil_mode, return_indices
---@return amp.Tensor, amp.Tensor
function Tensor:max_pool2d(kernel_size, stride, padding, dilation, ceil_mode, return_indices, options) end

---Largest value of each window; also its place (from 1, in the flattened volume) if asked for.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default 0
---@param return_indices? boolean default 0
---@param options? table or by name: kernel_size, stride, padding, dilation, ceil_mode, return_indices
---@return amp.Tensor, amp.Tensor
function Tensor:max_pool3d(kernel_size, stride, padding, dilation, ceil_mode, return_indices, options) end

---Zeros with input at the places that max_pool1d gave.
---@param indices amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param output_size? integer|integer[]
---@param options? table or by name: kernel_size, stride, padding, output_size
---@return amp.Tensor
function Tensor:max_unpool1d(indices, kernel_size, stride, padding, output_size, options) end

---Zeros with input at the places that max_pool2d gave.
---@param indices amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param output_size? integer|integer[]
---@param options? table or by name: kernel_size, stride, padding, output_size
---@return amp.Tensor
function Tensor:max_unpool2d(indices, kernel_size, stride, padding, output_size, options) end

---Zeros with input at the places that max_pool3d gave.
---@param indices amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param output_size? integer|integer[]
---@param options? table or by name: kernel_size, stride, padding, output_size
---@return amp.Tensor
function Tensor:max_unpool3d(indices, kernel_size, stride, padding, output_size, options) end

---The larger of both; NaN if either is.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:maximum(other) end

---Mean over dimensions, accumulated in float32.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function Tensor:mean(dim, keepdim, dtype, options) end

---The lower of the middle values, NaN if there is one; with a dimension also its index.
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function Tensor:median(dim, keepdim, options) end

---Smallest value; with a dimension also its index (from 1).
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function Tensor:min(dim, keepdim, options) end

---The smaller of both; NaN if either is.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:minimum(other) end

---input * tanh(softplus(input)).
---@return amp.Tensor
function Tensor:mish() end

---input * tanh(softplus(input)).
---@return amp.Tensor
function Tensor:mish_() end

---Product of two matrices.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:mm(other) end

---Remainder with the sign of other, as Lua's %.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:mod(other) end

---Remainder with the sign of other, as Lua's %.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:mod_(other) end

---The smallest of the most frequent values of a dimension, and the index of its last place.
---@param dim? integer default -1
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function Tensor:mode(dim, keepdim, options) end

---Dimensions moved to other places, the others keeping their order.
---@param source integer|integer[]
---@param destination integer|integer[]
---@param options? table or by name: source, destination
---@return amp.Tensor
function Tensor:movedim(source, destination, options) end

---Squared difference, averaged.
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function Tensor:mse_loss(target, reduction, options) end

---input * other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:mul(other) end

---input * other.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:mul_(other) end

---Attention of several heads between projections; also the attention weights if asked for.
---@param key amp.Tensor
---@param value amp.Tensor
---@param weights amp.Tensor[]
---@param parts integer
---@param num_heads integer
---@param add_zero_attn? boolean default 0
---@param dropout_p? number default 0
---@param training? boolean default 1
---@param need_weights? boolean default 1
---@param average_attn_weights? boolean default 1
---@param is_causal? boolean default 0
---@param batch_first? boolean default 0
---@param options? table or by name: parts, num_heads, add_zero_attn, dropout_p, training, need_weights, average_attn_weights, is_causal, batch_first
---@return amp.Tensor, amp.Tensor
function Tensor:multi_head_attention(key, value, weights, parts, num_heads, add_zero_attn, dropout_p, training, need_weights, average_attn_weights, is_causal, batch_first, options) end

---max(0, margin - input at the label + input)^p over the other classes; labels from 1.
---@param target amp.Tensor
---@param p? integer default 1
---@param margin? number default 1
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: p, margin, weight, reduction
---@return amp.Tensor
function Tensor:multi_margin_loss(target, p, margin, weight, reduction, options) end

---max(0, 1 - input at a label + input at no label), summed; a row's labels (from 1) end at the first 0.
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function Tensor:multilabel_margin_loss(target, reduction, options) end

---Binary cross entropy of logits, averaged over the classes of each row.
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: weight, reduction
---@return amp.Tensor
function Tensor:multilabel_soft_margin_loss(target, weight, reduction, options) end

---Indices (from 1) drawn with the weights in each row of input.
---@param num_samples integer
---@param replacement? boolean default 0
---@param options? table or by name: num_samples, replacement
---@return amp.Tensor
function Tensor:multinomial(num_samples, replacement, options) end

---Matrix times vector.
---@param vec amp.Tensor
---@return amp.Tensor
function Tensor:mv(vec) end

---NaN replaced by nan (0), infinities by posinf and neginf (the dtype's largest).
---@param nan? number
---@param posinf? number
---@param neginf? number
---@param options? table or by name: nan, posinf, neginf
---@return amp.Tensor
function Tensor:nan_to_num(nan, posinf, neginf, options) end

---NaN replaced by nan (0), infinities by posinf and neginf (the dtype's largest).
---@param nan? number
---@param posinf? number
---@param neginf? number
---@param options? table or by name: nan, posinf, neginf
---@return amp.Tensor
function Tensor:nan_to_num_(nan, posinf, neginf, options) end

---Mean over dimensions of what is not NaN.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function Tensor:nanmean(dim, keepdim, dtype, options) end

---The lower of the middle values that are not NaN; with a dimension also its index.
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function Tensor:nanmedian(dim, keepdim, options) end

---Quantiles of what is not NaN.
---@param q amp.Tensor|number
---@param dim? integer
---@param keepdim? boolean default 0
---@param interpolation? 'linear'|'lower'|'higher'|'midpoint'|'nearest' default 0
---@param options? table or by name: dim, keepdim, interpolation
---@return amp.Tensor
function Tensor:nanquantile(q, dim, keepdim, interpolation, options) end

---Sum over dimensions, NaN counting as 0.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function Tensor:nansum(dim, keepdim, dtype, options) end

---length elements of a dimension from start on (from 1).
---@param dim integer
---@param start integer
---@param length integer
---@param options? table or by name: dim, start, length
---@return amp.Tensor
function Tensor:narrow(dim, start, length, options) end

---Element-wise inequality.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:ne(other) end

----input.
---@return amp.Tensor
function Tensor:neg() end

----input.
---@return amp.Tensor
function Tensor:neg_() end

---Negative of input at each row's label, input being log-probabilities.
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param ignore_index? integer default -100
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: weight, ignore_index, reduction
---@return amp.Tensor
function Tensor:nll_loss(target, weight, ignore_index, reduction, options) end

---Indices (from 1) of non-zero elements, one a row.
---@return amp.Tensor
function Tensor:nonzero() end

---p-norm over dimensions.
---@param p? number default 2
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: p, dim, keepdim, dtype
---@return amp.Tensor
function Tensor:norm(p, dim, keepdim, dtype, options) end

---Fill with normal random values.
---@param mean? number default 0
---@param std? number default 1
---@param options? table or by name: mean, std
---@return amp.Tensor
function Tensor:normal_(mean, std, options) end

---input over its p-norm along a dimension, the norm being at least eps.
---@param p? number default 2
---@param dim? integer default 2
---@param eps? number default 1e-12
---@param options? table or by name: p, dim, eps
---@return amp.Tensor
function Tensor:normalize(p, dim, eps, options) end

---A last dimension that is 1 at each label (from 1), else 0.
---@param num_classes? integer default -1
---@param options? table or by name: num_classes
---@return amp.Tensor
function Tensor:one_hot(num_classes, options) end

---Every product of an element of one vector and one of the other.
---@param vec2 amp.Tensor
---@return amp.Tensor
function Tensor:outer(vec2) end

---Elements added before and after, a pair a dimension, the last dimension first; negative ones taken away.
---@param pad integer|integer[]
---@param mode? 'constant'|'reflect'|'replicate'|'circular' default 0
---@param value? number default 0
---@param options? table or by name: pad, mode, value
---@return amp.Tensor
function Tensor:pad(pad, mode, value, options) end

---p-norm of x1 - x2 + eps along the last dimension.
---@param x2 amp.Tensor
---@param p? number default 2
---@param eps? number default 1e-6
---@param keepdim? boolean default 0
---@param options? table or by name: p, eps, keepdim
---@return amp.Tensor
function Tensor:pairwise_distance(x2, p, eps, keepdim, options) end

---p-norms of the differences of each two rows of a matrix.
---@param p? number default 2
---@param options? table or by name: p
---@return amp.Tensor
function Tensor:pdist(p, options) end

---Dimensions in another order.
---@param dims integer|integer[]
---@param options? table or by name: dims
---@return amp.Tensor
function Tensor:permute(dims, options) end

---Pseudo-inverse; singular values up to rcond times the largest count as 0.
---@param rcond? number
---@param options? table or by name: rcond
---@return amp.Tensor
function Tensor:pinverse(rcond, options) end

---C r^2 x H x W to C x H r x W r.
---@param upscale_factor integer
---@param options? table or by name: upscale_factor
---@return amp.Tensor
function Tensor:pixel_shuffle(upscale_factor, options) end

---C x H r x W r to C r^2 x H x W.
---@param downscale_factor integer
---@param options? table or by name: downscale_factor
---@return amp.Tensor
function Tensor:pixel_unshuffle(downscale_factor, options) end

---Poisson distributed counts whose rates are input.
---@return amp.Tensor
function Tensor:poisson() end

---Negative log-likelihood of Poisson counts, input being the rate or its logarithm.
---@param target amp.Tensor
---@param log_input? boolean default 1
---@param full? boolean default 0
---@param eps? number default 1e-8
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: log_input, full, eps, reduction
---@return amp.Tensor
function Tensor:poisson_nll_loss(target, log_input, full, eps, reduction, options) end

---n-th derivative of digamma.
---@param n integer
---@param options? table or by name: n
---@return amp.Tensor
function Tensor:polygamma(n, options) end

---input itself.
---@return amp.Tensor
function Tensor:positive() end

---input to the power exponent.
---@param exponent amp.Tensor|number
---@return amp.Tensor
function Tensor:pow(exponent) end

---input to the power exponent.
---@param exponent amp.Tensor|number
---@return amp.Tensor
function Tensor:pow_(exponent) end

---leaky_relu with a learnt slope, one or one a channel (dimension 2).
---@param weight amp.Tensor
---@return amp.Tensor
function Tensor:prelu(weight) end

---Product over one dimension or all.
---@param dim? integer
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function Tensor:prod(dim, keepdim, dtype, options) end

---A copy of input with source at places in C order.
---@param index amp.Tensor
---@param source amp.Tensor
---@param accumulate? boolean default 0
---@param options? table or by name: accumulate
---@return amp.Tensor
function Tensor:put(index, source, accumulate, options) end

---A copy of input with source at places in C order.
---@param index amp.Tensor
---@param source amp.Tensor
---@param accumulate? boolean default 0
---@param options? table or by name: accumulate
---@return amp.Tensor
function Tensor:put_(index, source, accumulate, options) end

---Q with orthonormal columns and upper triangular R whose product is input; complete: Q is square.
---@param mode? 'reduced'|'complete' default 0
---@param options? table or by name: mode
---@return amp.Tensor, amp.Tensor
function Tensor:qr(mode, options) end

---Quantiles q (0 to 1); a vector of them gives a leading dimension.
---@param q amp.Tensor|number
---@param dim? integer
---@param keepdim? boolean default 0
---@param interpolation? 'linear'|'lower'|'higher'|'midpoint'|'nearest' default 0
---@param options? table or by name: dim, keepdim, interpolation
---@return amp.Tensor
function Tensor:quantile(q, dim, keepdim, interpolation, options) end

---number / input.
---@param number number
---@param options? table or by name: number
---@return amp.Tensor
function Tensor:rdiv(number, options) end

---1 / input.
---@return amp.Tensor
function Tensor:reciprocal() end

---1 / input.
---@return amp.Tensor
function Tensor:reciprocal_() end

---max(input, 0).
---@return amp.Tensor
function Tensor:relu() end

---max(input, 0).
---@return amp.Tensor
function Tensor:relu_() end

---Values limited to [0, 6].
---@return amp.Tensor
function Tensor:relu6() end

---Values limited to [0, 6].
---@return amp.Tensor
function Tensor:relu6_() end

---Slices of a dimension scaled down to a p-norm of at most maxnorm.
---@param p number
---@param dim integer
---@param maxnorm number
---@param options? table or by name: p, dim, maxnorm
---@return amp.Tensor
function Tensor:renorm(p, dim, maxnorm, options) end

---Slices of a dimension scaled down to a p-norm of at most maxnorm.
---@param p number
---@param dim integer
---@param maxnorm number
---@param options? table or by name: p, dim, maxnorm
---@return amp.Tensor
function Tensor:renorm_(p, dim, maxnorm, options) end

---The tensor tiled.
---@param repeats integer|integer[]
---@param options? table or by name: repeats
---@return amp.Tensor
Tensor['repeat'] = function(self, repeats, options) end

---Each element of a dimension repeated; repeats is a count or a vector of counts.
---@param repeats amp.Tensor|number
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:repeat_interleave(repeats, dim, options) end

---As view, with a copy where strides need one.
---@param shape integer|integer[]
---@param options? table or by name: shape
---@return amp.Tensor
function Tensor:reshape(shape, options) end

---First n/2 + 1 elements of the fft of a real tensor, complex (last dimension real, imaginary).
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: n, dim, norm
---@return amp.Tensor
function Tensor:rfft(n, dim, norm, options) end

---fft2 of a real tensor, the last dimension's redundant half left out.
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function Tensor:rfft2(s, dim, norm, options) end

---fftn of a real tensor, the last dimension's redundant half left out.
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function Tensor:rfftn(s, dim, norm, options) end

---input over its root mean square in the last dimensions, which have the given shape.
---@param shape integer|integer[]
---@param weight? amp.Tensor
---@param eps? number
---@param options? table or by name: shape, weight, eps
---@return amp.Tensor
function Tensor:rms_norm(shape, weight, eps, options) end

---Layers of simple recurrent nets over a sequence; gives the results and the last states.
---@param hx amp.Tensor
---@param weights amp.Tensor[]
---@param num_layers? integer default 1
---@param bias? boolean default 1
---@param batch_first? boolean default 0
---@param bidirectional? boolean default 0
---@param dropout? number default 0
---@param training? boolean default 0
---@param packed? boolean default 0
---@param mode? 'tanh'|'relu' default 0
---@param options? table or by name: num_layers, bias, batch_first, bidirectional, dropout, training, packed, mode
---@return amp.Tensor, amp.Tensor
function Tensor:rnn(hx, weights, num_layers, bias, batch_first, bidirectional, dropout, training, packed, mode, options) end

---One step of a simple recurrent net: relu of both projections.
---@param hx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor
function Tensor:rnn_relu_cell(hx, w_ih, w_hh, b_ih, b_hh, options) end

---One step of a simple recurrent net: tanh of both projections.
---@param hx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor
function Tensor:rnn_tanh_cell(hx, w_ih, w_hh, b_ih, b_hh, options) end

---Elements moved along dimensions, around the end; without dims over all elements in order.
---@param shifts integer|integer[]
---@param dims? integer|integer[]
---@param options? table or by name: shifts, dims
---@return amp.Tensor
function Tensor:roll(shifts, dims, options) end

---Turned k quarters from the first towards the second of two dimensions (1 and 2 if none are given).
---@param k? integer default 1
---@param dims? integer|integer[]
---@param options? table or by name: k, dims
---@return amp.Tensor
function Tensor:rot90(k, dims, options) end

---Round to nearest, ties to even.
---@return amp.Tensor
function Tensor:round() end

---Round to nearest, ties to even.
---@return amp.Tensor
function Tensor:round_() end

---number to the power input.
---@param number number
---@param options? table or by name: number
---@return amp.Tensor
function Tensor:rpow(number, options) end

---1 / square root.
---@return amp.Tensor
function Tensor:rsqrt() end

---1 / square root.
---@return amp.Tensor
function Tensor:rsqrt_() end

---Attention of query over key and value; a mask is true where a key takes part, or is added to the scores (to leave out a whole row use false or -inf: where all values of a row are finite and beyond -1e5 its gradients are not exact).
---@param key amp.Tensor
---@param value amp.Tensor
---@param attn_mask? amp.Tensor
---@param dropout_p? number default 0
---@param is_causal? boolean default 0
---@param scale? number
---@param enable_gqa? boolean default 0
---@param options? table or by name: attn_mask, dropout_p, is_causal, scale, enable_gqa
---@return amp.Tensor
function Tensor:scaled_dot_product_attention(key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, options) end

---A copy of input with src written at indices.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor|number
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:scatter(dim, index, src, options) end

---A copy of input with src written at indices.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor|number
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:scatter_(dim, index, src, options) end

---A copy of input with src added at indices.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:scatter_add(dim, index, src, options) end

---A copy of input with src added at indices.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:scatter_add_(dim, index, src, options) end

---A copy of input with src combined at indices.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param reduce 'sum'|'prod'|'mean'|'amax'|'amin'
---@param include_self? boolean default 1
---@param options? table or by name: dim, reduce, include_self
---@return amp.Tensor
function Tensor:scatter_reduce(dim, index, src, reduce, include_self, options) end

---A copy of input with src combined at indices.
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param reduce 'sum'|'prod'|'mean'|'amax'|'amin'
---@param include_self? boolean default 1
---@param options? table or by name: dim, reduce, include_self
---@return amp.Tensor
function Tensor:scatter_reduce_(dim, index, src, reduce, include_self, options) end

---The index (from 1) in a sorted last dimension at which each value would be inserted.
---@param input amp.Tensor|number
---@param right? boolean default 0
---@param options? table or by name: right
---@return amp.Tensor
function Tensor:searchsorted(input, right, options) end

---One index of a dimension, which goes.
---@param dim integer
---@param index integer
---@param options? table or by name: dim, index
---@return amp.Tensor
function Tensor:select(dim, index, options) end

---elu with the constants that keep mean and variance.
---@return amp.Tensor
function Tensor:selu() end

---elu with the constants that keep mean and variance.
---@return amp.Tensor
function Tensor:selu_() end

---1 / (1 + exp(-input)).
---@return amp.Tensor
function Tensor:sigmoid() end

---1 / (1 + exp(-input)).
---@return amp.Tensor
function Tensor:sigmoid_() end

----1, 0 or 1; NaN stays.
---@return amp.Tensor
function Tensor:sign() end

----1, 0 or 1; NaN stays.
---@return amp.Tensor
function Tensor:sign_() end

---input * sigmoid(input).
---@return amp.Tensor
function Tensor:silu() end

---input * sigmoid(input).
---@return amp.Tensor
function Tensor:silu_() end

---Sine of radians.
---@return amp.Tensor
function Tensor:sin() end

---Sine of radians.
---@return amp.Tensor
function Tensor:sin_() end

---sin(pi input) / (pi input); 1 at 0.
---@return amp.Tensor
function Tensor:sinc() end

---sin(pi input) / (pi input); 1 at 0.
---@return amp.Tensor
function Tensor:sinc_() end

---Hyperbolic sine.
---@return amp.Tensor
function Tensor:sinh() end

---Hyperbolic sine.
---@return amp.Tensor
function Tensor:sinh_() end

---Sign of the determinant, and the logarithm of its absolute value.
---@return amp.Tensor, amp.Tensor
function Tensor:slogdet() end

---Squared where input and target differ by less than beta, else absolute difference, averaged.
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param beta? number default 1
---@param options? table or by name: reduction, beta
---@return amp.Tensor
function Tensor:smooth_l1_loss(target, reduction, beta, options) end

---log(1 + exp(-target * input)), targets being 1 or -1.
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function Tensor:soft_margin_loss(target, reduction, options) end

---exp(input) over its sum along a dimension.
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function Tensor:softmax(dim, dtype, options) end

---softmax of -input.
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function Tensor:softmin(dim, dtype, options) end

---log(1 + exp(beta * input)) / beta; input itself where beta * input exceeds threshold.
---@param beta? number default 1
---@param threshold? number default 20
---@param options? table or by name: beta, threshold
---@return amp.Tensor
function Tensor:softplus(beta, threshold, options) end

---input moved towards 0 by lambd; 0 where it would cross.
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function Tensor:softshrink(lambd, options) end

---input moved towards 0 by lambd; 0 where it would cross.
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function Tensor:softshrink_(lambd, options) end

---input / (1 + abs(input)).
---@return amp.Tensor
function Tensor:softsign() end

---input / (1 + abs(input)).
---@return amp.Tensor
function Tensor:softsign_() end

---X of A X = B (X A = B without left); B holds matrices, or vectors if it has A's shape without the last dimension.
---@param B amp.Tensor
---@param left? boolean default 1
---@param options? table or by name: left
---@return amp.Tensor
function Tensor:solve(B, left, options) end

---X of A X = B (X A = B without left), of A only the named triangle being read.
---@param B amp.Tensor
---@param upper boolean
---@param left? boolean default 1
---@param unitriangular? boolean default 0
---@param options? table or by name: upper, left, unitriangular
---@return amp.Tensor
function Tensor:solve_triangular(B, upper, left, unitriangular, options) end

---Values in order along a dimension, and where they stood.
---@param dim? integer default -1
---@param descending? boolean default 0
---@param stable? boolean default 0
---@param options? table or by name: dim, descending, stable
---@return amp.Tensor, amp.Tensor
function Tensor:sort(dim, descending, stable, options) end

---Square root.
---@return amp.Tensor
function Tensor:sqrt() end

---Square root.
---@return amp.Tensor
function Tensor:sqrt_() end

---input * input.
---@return amp.Tensor
function Tensor:square() end

---input * input.
---@return amp.Tensor
function Tensor:square_() end

---Dimensions of size 1 (or the given one, if it is) removed.
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:squeeze(dim, options) end

---Square root of var, of values whose squares overflow too.
---@param dim? integer|integer[]
---@param correction? number default 1
---@param keepdim? boolean default 0
---@param options? table or by name: dim, correction, keepdim
---@return amp.Tensor
function Tensor:std(dim, correction, keepdim, options) end

---input - alpha * other.
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:sub(other, alpha, options) end

---input - alpha * other.
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function Tensor:sub_(other, alpha, options) end

---Sum over dimensions (all if none given); integers give int64.
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function Tensor:sum(dim, keepdim, dtype, options) end

---U, S, V of input = U diag(S) V^T, S falling; some: only the columns that belong to S.
---@param some? boolean default 1
---@param options? table or by name: some
---@return amp.Tensor, amp.Tensor, amp.Tensor
function Tensor:svd(some, options) end

---Singular values, falling.
---@return amp.Tensor
function Tensor:svdvals() end

---batch_norm over the batches of all processes; in a single one batch_norm itself.
---@param running_mean? amp.Tensor
---@param running_var? amp.Tensor
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param training? boolean default 0
---@param momentum? number default 0.1
---@param eps? number default 1e-5
---@param options? table or by name: running_mean, running_var, weight, bias, training, momentum, eps
---@return amp.Tensor
function Tensor:sync_batch_norm(running_mean, running_var, weight, bias, training, momentum, eps, options) end

---A matrix transposed; vectors stay.
---@return amp.Tensor
function Tensor:t() end

---Elements by their places in C order.
---@param index amp.Tensor
---@return amp.Tensor
function Tensor:take(index) end

---As gather, with the other dimensions broadcast; without a dimension over all elements.
---@param indices amp.Tensor
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:take_along_dim(indices, dim, options) end

---Tangent of radians.
---@return amp.Tensor
function Tensor:tan() end

---Tangent of radians.
---@return amp.Tensor
function Tensor:tan_() end

---Hyperbolic tangent.
---@return amp.Tensor
function Tensor:tanh() end

---Hyperbolic tangent.
---@return amp.Tensor
function Tensor:tanh_() end

---input - tanh(input).
---@return amp.Tensor
function Tensor:tanhshrink() end

---input - tanh(input).
---@return amp.Tensor
function Tensor:tanhshrink_() end

---Products summed over the last dims dimensions of input and the first of other, or over the listed ones.
---@param other amp.Tensor
---@param dims? integer default 2
---@param dims_input? integer|integer[]
---@param dims_other? integer|integer[]
---@param options? table or by name: dims, dims_input, dims_other
---@return amp.Tensor
function Tensor:tensordot(other, dims, dims_input, dims_other, options) end

---value where input <= threshold.
---@param threshold number
---@param value number
---@param options? table or by name: threshold, value
---@return amp.Tensor
function Tensor:threshold(threshold, value, options) end

---value where input <= threshold.
---@param threshold number
---@param value number
---@param options? table or by name: threshold, value
---@return amp.Tensor
function Tensor:threshold_(threshold, value, options) end

---The k largest (or smallest) values of a dimension, and their indices.
---@param k integer
---@param dim? integer default -1
---@param largest? boolean default 1
---@param sorted? boolean default 1
---@param options? table or by name: k, dim, largest, sorted
---@return amp.Tensor, amp.Tensor
function Tensor:topk(k, dim, largest, sorted, options) end

---Sum of a matrix's diagonal; integers give int64.
---@return amp.Tensor
function Tensor:trace() end

---Two dimensions swapped.
---@param dim0 integer
---@param dim1 integer
---@param options? table or by name: dim0, dim1
---@return amp.Tensor
function Tensor:transpose(dim0, dim1, options) end

---X of A X = b (of A^T X = b with transpose) for a triangular A, and A.
---@param A amp.Tensor
---@param upper? boolean default 1
---@param transpose? boolean default 0
---@param unitriangular? boolean default 0
---@param options? table or by name: upper, transpose, unitriangular
---@return amp.Tensor, amp.Tensor
function Tensor:triangular_solve(A, upper, transpose, unitriangular, options) end

---The lower triangle, zeros above.
---@param diagonal? integer default 0
---@param options? table or by name: diagonal
---@return amp.Tensor
function Tensor:tril(diagonal, options) end

---max(0, margin + distance to positive - distance to negative) of each row.
---@param positive amp.Tensor
---@param negative amp.Tensor
---@param margin? number default 1
---@param p? number default 2
---@param eps? number default 1e-6
---@param swap? boolean default 0
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, p, eps, swap, reduction
---@return amp.Tensor
function Tensor:triplet_margin_loss(positive, negative, margin, p, eps, swap, reduction, options) end

---The upper triangle, zeros below.
---@param diagonal? integer default 0
---@param options? table or by name: diagonal
---@return amp.Tensor
function Tensor:triu(diagonal, options) end

---Round toward zero.
---@return amp.Tensor
function Tensor:trunc() end

---Round toward zero.
---@return amp.Tensor
function Tensor:trunc_() end

---Windows of a dimension, as a new last one.
---@param dim integer
---@param size integer
---@param step integer
---@param options? table or by name: dim, size, step
---@return amp.Tensor
function Tensor:unfold(dim, size, step, options) end

---Fill with uniform random values in [from, to).
---@param from? number default 0
---@param to? number default 1
---@param options? table or by name: from, to
---@return amp.Tensor
function Tensor:uniform_(from, to, options) end

---The different values, sorted; also where each element's value went and how often each occurs, if asked for.
---@param sorted? boolean default 1
---@param return_inverse? boolean default 0
---@param return_counts? boolean default 0
---@param options? table or by name: sorted, return_inverse, return_counts
---@return amp.Tensor, amp.Tensor, amp.Tensor
function Tensor:unique(sorted, return_inverse, return_counts, options) end

---The elements that differ from the one before; also each element's place and the lengths of the runs, if asked for.
---@param return_inverse? boolean default 0
---@param return_counts? boolean default 0
---@param options? table or by name: return_inverse, return_counts
---@return amp.Tensor, amp.Tensor, amp.Tensor
function Tensor:unique_consecutive(return_inverse, return_counts, options) end

---A dimension of size 1 inserted at dim.
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:unsqueeze(dim, options) end

---Variance, sum of squares over n - correction.
---@param dim? integer|integer[]
---@param correction? number default 1
---@param keepdim? boolean default 0
---@param options? table or by name: dim, correction, keepdim
---@return amp.Tensor
function Tensor:var(dim, correction, keepdim, options) end

---Inner product of two vectors.
---@param other amp.Tensor
---@return amp.Tensor
function Tensor:vdot(other) end

---Inner products along a dimension.
---@param other amp.Tensor
---@param dim? integer default -1
---@param options? table or by name: dim
---@return amp.Tensor
function Tensor:vecdot(other, dim, options) end

---p-norm over dimensions, p being ord.
---@param ord? number default 2
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: ord, dim, keepdim, dtype
---@return amp.Tensor
function Tensor:vector_norm(ord, dim, keepdim, dtype, options) end

---The same elements in another shape, without a copy; one size may be -1.
---@param shape integer|integer[]
---@param options? table or by name: shape
---@return amp.Tensor
function Tensor:view(shape, options) end

---input where condition is true, else other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:where(input, other) end

---input * log(other); 0 where input is 0.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:xlogy(other) end

---input * log(other); 0 where input is 0.
---@param other amp.Tensor|number
---@return amp.Tensor
function Tensor:xlogy_(other) end

---Every |t - u| <= atol + rtol * |u|? Waits for the device.
---@param u amp.Tensor
---@param rtol any
---@param atol any
---@param equal_nan any
---@return boolean # 
function Tensor:allclose(u, rtol, atol, equal_nan) end

---The same as `nonzero`.
function Tensor:argwhere() end

---t:backward(gradient, {retain_graph, create_graph}); gradient may be left out for one value.
---@param gradient any
---@param o any
function Tensor:backward(gradient, o) end

---As amp.bernoulli.
---@param p any
function Tensor:bernoulli(p) end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:bfloat16(given) end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:bool(given) end

---The same as `expand`.
function Tensor:broadcast_to() end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:byte(given) end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:char(given) end

---At most n views of equal size (the last may be smaller) along a dimension.
---@param n any
---@param dim any
function Tensor:chunk(n, dim) end

---t:copy_(u): u's values, broadcast, in t's dtype. t:copy_(u, {non_blocking = true}) only queues a copy between
---pinned memory and a GPU, as `to` does.
---@param u any
---@param given any
function Tensor:copy_(u, given) end

---On the CPU. Options are those of `to`.
---@param given any
function Tensor:cpu(given) end

---On a GPU: the given one (from 1), else the first. t:cuda(), t:cuda(2), t:cuda{non_blocking = true}
---@param index any
---@param given any
function Tensor:cuda(index, given) end

---Address of the first element (a cdata pointer of the dtype's C type, uint16_t for 16-bit floats, uint8_t for 8-bit ones).
---LuaJIT takes some NaNs that are read through such a pointer for values of its own (a table, a function): read by it only what was
---computed here; `item` and `tolist` give plain NaNs, whatever the bits.
function Tensor:data_ptr() end

---The same elements without history.
function Tensor:detach() end

---Number of dimensions.
function Tensor:dim() end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:double(given) end

---Bytes of an element.
function Tensor:element_size() end

---Same shape and values? Waits for the device.
---@param u any
---@return boolean # 
function Tensor:equal(u) end

---As expand, view or reshape with the shape of u: expand_as, view_as, reshape_as.
---@param u any
function Tensor:expand_as(u) end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:float(given) end

---Give the memory back now; the handle can't be used afterwards. Twice is harmless.
function Tensor:free() end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:half(given) end

---A number that is unique to the tensor: the same for all its handles, never reused.
function Tensor:id() end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:int(given) end

---Whether elements lie in C order ('contiguous') or in that of channels-last images.
---@param options? table {memory_format = 'channels_last'}
function Tensor:is_contiguous(options) end

---Whether the dtype is float64, float32, float16 or bfloat16.
function Tensor:is_floating_point() end

---Whether the tensor lies in pinned memory; false without a GPU.
function Tensor:is_pinned() end

---The only element, as a Lua number (booleans as true or false).
function Tensor:item() end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:long(given) end

---The same as `movedim`.
function Tensor:moveaxis() end

---Number of dimensions.
function Tensor:nDimension() end

---Number of elements.
function Tensor:nElement() end

---Number of dimensions.
function Tensor:ndimension() end

---Number of elements.
function Tensor:nelement() end

---Number of elements.
function Tensor:numel() end

---A copy in pinned memory, which a GPU copies from and to while the program goes on; without history. The tensor itself
---if it is pinned, or where there is no GPU. Pinning costs; make it once and fill it again, or leave it to a DataLoader.
function Tensor:pin_memory() end

---fn(grad) is called when the tensor's gradient is complete; what it gives replaces it.
---The tensor keeps fn, and fn what it mentions: a hook that mentions its own tensor keeps both
---alive until backward has freed the graph (each slice of an unbind: its own backward), or for ever on a leaf,
---unless it is removed.
---@param fn function
---@return table # handle with :remove()
function Tensor:register_hook(fn) end

---Ask for gradients (a leaf only). Gives the tensor.
---@param on any
function Tensor:requires_grad_(on) end

---As expand, view or reshape with the shape of u: expand_as, view_as, reshape_as.
---@param u any
function Tensor:reshape_as(u) end

---Take the storage and shape of another tensor, keeping identity.
---@param u any
function Tensor:set_data(u) end

---Whether two tensors lie in the same storage.
---@param u any
function Tensor:shares_storage(u) end

---The tensor in the dtype of the method's name: half float double bfloat16 long int short char (int8) byte (uint8) bool.
---Options are those of `to`: t:half{memory_format = 'channels_last'}.
---@param given any
function Tensor:short(given) end

---Sizes as a list that prints as "2x3", or one size.
---@param d? number dimension
function Tensor:size(d) end

---Views of at most `size` elements each along a dimension, or of the listed sizes.
---@param size any
---@param dim any
function Tensor:split(size, dim) end

---Place of the first element in its storage, in elements from 0.
function Tensor:storage_offset() end

---Strides in elements, as a list or one of them.
---@param d any
function Tensor:stride(d) end

---The same as `transpose`.
function Tensor:swapaxes() end

---The same as `transpose`.
function Tensor:swapdims() end

---n views whose sizes differ by at most one, or views that begin at the listed indices (the first at 1).
---t:tensor_split(3), t:tensor_split({3, 5}, dim): 1..2, 3..4, 5..end
---@param where any
---@param dim any
function Tensor:tensor_split(where, dim) end

---Product summed over dimensions of both, see amp.tensordot.
function Tensor:tensordot() end

---The tensor tiled; missing leading repeats count as 1. (`repeat` is a word of Lua's grammar.)
function Tensor:tile(...) end

---Another dtype, device or layout; the tensor itself where nothing changes.
---t:to('cuda'), t:to('float16'), t:to(u), t:to{dtype =, device =, memory_format =, copy =, non_blocking =, saturate =}
---To an 8-bit float, values beyond the largest and infinities become the largest; with saturate = false NaN
---(float8_e4m3) or infinity (float8_e5m2).
---With non_blocking a copy between pinned memory and a GPU is only queued: the CPU's side may be written, or read, after
---the stream has come that far (amp.cuda.synchronize, an event). A copy to the CPU then lies in pinned memory.
---@param a any
---@param b any
---@param c any
function Tensor:to(a, b, c) end

---All elements as nested tables of numbers; a scalar gives a number.
function Tensor:tolist() end

---The dtype's name; with a dtype, a conversion.
---@param dtype any
function Tensor:type(dtype) end

---In the dtype of u.
---@param u any
function Tensor:type_as(u) end

---A list of the slices of a dimension, which goes.
---@param dim any
function Tensor:unbind(dim) end

---A list of the slices of a dimension, which goes.
---@param dim any
function Tensor:unstack(dim) end

---Count of in-place changes of the storage so far.
function Tensor:version() end

---As expand, view or reshape with the shape of u: expand_as, view_as, reshape_as.
---@param u any
function Tensor:view_as(u) end

---Fill with zeros.
function Tensor:zero_() end

---@class amp.Graph
---@field training boolean
---@overload fun(...: any): any
local Graph = {}

---Its buffers (running statistics and the like), a list.
function Graph:buffers() end

---Write it as an ONNX model at exactly this path.
---@param path string
---@param given? table opset (17): 14 to 17
function Graph:export_onnx(path, given) end

---Names of its inputs, a list.
---@return table # 
function Graph:inputs() end

---Iterate over names and buffers.
function Graph:named_buffers() end

---Iterate over names and parameters.
function Graph:named_parameters() end

---Its nodes, in the order in which they run; attributes have the values of the recording.
---@return table # list of {name, op, inputs = {names}, attrs = {by name}, outputs = {{name, shape, dtype}}}
function Graph:nodes() end

---Change it into a graph that does the same in less. Results and gradients agree with those before within rounding, and it goes on
---seeing changed parameters.
---@param given? table passes, each true unless it is false here: dead (what changes nothing and is not used goes), common (equal nodes become one), constants (nodes of constants are computed), fold (batch norm in eval mode goes into the product before it), joins (nodes that one op does together), chains (elementwise nodes pass over memory together), layout (for compiled functions: channels last on a CPU), fuse (joins and chains); keep_weights (true): products on a CPU keep their weights in the form of their kernels, a second copy that goes where memory is short
---@return amp.Graph # itself
function Graph:optimize(given) end

---Names of its outputs, a list.
---@return table # 
function Graph:outputs() end

---Its parameters, a list; they are the module's.
---@return table # 
function Graph:parameters() end

---Run it: the values that the function gives for these arguments; g(...) is the same. One differentiable function.
---@param ... any what the function takes: tensors of the sizes and dtypes it was traced for (free sizes aside), nested the same way, on the device of the parameters
---@return any # what the function gives
function Graph:run(...) end

---Write it to a safetensors file at exactly this path: parameters, buffers and constants as tensors, the ops as JSON in its metadata.
---amp.load_graph reads it without the Lua that made it, amp_graph_load (amp.h) without any.
---@param path string
---@param given? table remove_amp_cast (false): write the plain float32 graph of a converted one
function Graph:save(path, given) end

---Draw it for Graphviz (https://graphviz.org): a text in its language, at exactly this path. Casts are orange, parameters, inputs and
---outputs have their own shapes, and modules are boxes around their nodes. amp.plot.graph draws a picture without Graphviz.
---@param path string
---@return amp.Graph # itself
function Graph:save_dot(path) end

---Move its parameters and buffers, which stay the module's, and its constants to a device. Inputs are expected there from then on.
---@param device string 'cpu', 'cuda', 'cuda:2'
---@return amp.Graph # itself
function Graph:to(device) end

---@class amp.optim.Optimizer
---@field param_groups table[]
local Optimizer = {}

---Add a group of parameters with options of its own.
---@param group table {params = {...}, lr = ..., ...}; what is not given is as at creation
---@return any # self
function Optimizer:add_param_group(group) end

---Gradients of all parameters become nil.
---@return any # self
function Optimizer:clear_grad() end

---Name for messages: option `name`, else class and the line that made it.
function Optimizer:describe() end

---Whether any parameter has a gradient.
function Optimizer:has_grads() end

---Go on from a state dict: hyper-parameters, step counts and state tensors (copied).
---@param dict any
---@return any # self
function Optimizer:load_state_dict(dict) end

---Everything needed to go on, as plain tables of tensors and numbers.
---`state[i]` belongs to the i-th parameter over all groups; tensors share memory with the optimizer.
---@return table # {state = {...}, param_groups = {...}}
function Optimizer:state_dict() end

---Update every parameter that has a gradient.
---@param closure? function called first; its results are returned instead of self
---@return any # self
function Optimizer:step(closure) end

---Gradients become nil, or zeros with {set_to_none = false}.
---@param options any
---@return any # self
function Optimizer:zero_grad(options) end

---@class amp.optim.Schedule
local Schedule = {}

---Rates now, one a group.
function Schedule:get_last_lr() end

---Go on from a state dict; sets the rates.
---@param s any
---@return any # self
function Schedule:load_state_dict(s) end

---Where the schedule stands, as plain numbers.
function Schedule:state_dict() end

---Go to the next rate (or to that of a given step).
---@param epoch? number an integer; a fraction of a step for CosineAnnealingWarmRestarts
---@return any # self
function Schedule:step(epoch) end

do
---@class amp.GradManager
local Class = {}

---Attach float tensors. Callbacks fn(tensor, grad) -> grad run in turn before a gradient is
---stored; nil leaves it as it is. During a recording the tensors are recorded from here on.
---@param tensors any a tensor or a list
---@param o? table {callbacks = fn or list}
---@return any # self
function Class:attach(tensors, o) end

---Attached tensors that are alive, in attach order.
---@return table # list
function Class:attached_tensors() end

---Add dy * dy/dt to the gradient of every attached tensor t that y depends on; the recording ends. While another
---manager records, or one of the same group has not gone backward yet, the graph stays for it.
---@param y any a tensor or a list; several values start with ones
---@param o? table {dy = gradient of the same shape, a number, or a list of them}
---@return any # self
function Class:backward(y, o) end

---Record what fn does with the attached tensors; gives what fn returns. Without a function
---recording goes on until backward or release.
---@param fn? function
---@param ... any its arguments
---@return any # fn's results; self without fn
function Class:record(fn, ...) end

---End a recording and forget it; harmless without one.
---@return any # self
function Class:release() end

end

do
---@class amp.GradScaler
local Class = {}

---The automatic gear: backward of the scaled loss through a manager, unscale, update.
---@param gm any a GradManager that recorded the loss
---@param loss amp.Tensor|table
---@param o? table {dy, unscale_grad = true, update_scale = unscale_grad}
---@return any # self
function Class:backward(gm, loss, o) end

---End a block: unscale the gradients of optimizers, hold back their next steps if an overflow
---is found, update the scale. Nothing waits.
---@param opts table optimizers
---@param hold function (optimizer, check) makes its next step look at the check
---@return any # self
function Class:end_block(opts, hold) end

---Whether the last look at gradients found an overflow. Waits for the device.
---@param opt any that optimizer's last step or unscale_ only; also after update
---@return boolean # 
function Class:found_inf(opt) end

---Clean updates since the last change. Waits for the device.
function Class:get_growth_tracker() end

---The scale, a number (1 where disabled). Waits for the device. Also `scaler.scale_factor`.
function Class:get_scale() end

---Steps skipped in a row, and in all, as far as it is known without a wait.
function Class:get_skipped() end

---Whether this scaler does anything.
function Class:is_enabled() end

---Whether an optimizer's gradients were unscaled since the last update.
---@param opt any
function Class:is_unscaled(opt) end

---Go on from a state dict.
---@param dict any
---@return any # self
function Class:load_state_dict(dict) end

---Go on from a scale and a count of clean updates.
---@param scale any
---@param tracker any
---@return any # self
function Class:resume(scale, tracker) end

---A loss (or a nested table of outputs), in float32, times the scale.
---@param outputs any tensor or table
---@return any # the same structure
function Class:scale(outputs) end

---The scale as a float32 scalar on a device; does not wait. Made for gm:backward's dy.
---@param device? string default: the default device
---@return amp.Tensor # scalar
function Class:scale_tensor(device) end

---Set the scale; the growth tracker stays.
---@param v any
function Class:set_scale(v) end

---Plain numbers; a run resumed from them repeats the scale's path exactly. Waits for the device.
function Class:state_dict() end

---Step an optimizer, unless an overflow is found: then nothing of it changes.
---@param opt any an optimizer of amp.optim, or a table with step and param_groups (then this waits)
---@param o? table {allow_empty = true}: no gradients at all is no error
---@return any # self
function Class:step(opt, o) end

---Unscale the gradients of tensors; on overflow they read as nil, and the next step of any
---optimizer of theirs leaves everything alone.
---@param list table tensors
---@return any # self
function Class:unscale(list) end

---Unscale an optimizer's gradients now, to clip or look at them; step does it otherwise.
---@param opt any
---@return any # self
function Class:unscale_(opt) end

---End an iteration: adjust the scale by what its checks found; or set it.
---@param new_scale any a number or scalar tensor to go on with
---@return any # self
function Class:update(new_scale) end

end

do
---@class amp.Logger
local Class = {}

---Write what waits and close the files. Twice is harmless; a logger that is forgotten does so when it is collected.
function Class:close() end

---Log a figure of amp.plot as an image.
---@param tag any
---@param figure any
---@param step any
function Class:figure(tag, figure, step) end

---Write what waits, and have the disk keep it. Waits for the devices of scalars that are tensors.
---@return any # self
function Class:flush() end

---Log the distribution of a tensor's values; waits for its device, and copies the counts.
---@param tag string
---@param values amp.Tensor|table what is not finite is left out
---@param step? number
---@param given? table bins (30)
---@return any # self
function Class:histogram(tag, values, step, given) end

---Log an image, or several in a grid; waits for its device.
---@param tag string
---@param t amp.Tensor H x W, C x H x W or N x C x H x W
---@param step? number
---@param given? table options of amp.plot.image
---@return any # self
function Class:image(tag, t, step, given) end

---Log a number under a name.
---@param tag string such as 'loss/train': TensorBoard groups by what stands before the slash
---@param v number|amp.Tensor a tensor has one element, and is read later
---@param step? number the last one by default
---@return any # self
function Class:scalar(tag, v, step) end

---Log several numbers of one step.
---@param values table name -> number or tensor
---@param step? number
---@return any # self
function Class:scalars(values, step) end

---Log a text; Markdown is shown as such.
---@param tag any
---@param text any
---@param step any
function Class:text(tag, text, step) end

end

do
---@class amp.cuda.Event
local Class = {}

---Milliseconds of the GPU from this event to another one; both with timing, and reached.
---@param other any
---@return number # 
function Class:elapsed_time(other) end

---Whether all that was before the mark is done; true for one that was never recorded.
function Class:query() end

---Set the mark behind what a stream has been given so far; again: it is moved.
---@param stream? any default: the one in use
---@return any # Event itself
function Class:record(stream) end

---Wait until all that was before the mark is done.
function Class:synchronize() end

---What a stream is given from now on comes after the mark; the program does not wait.
---@param stream? any default: the one in use
function Class:wait(stream) end

end

do
---@class amp.cuda.Stream
local Class = {}

---Whether it has done all it was given.
function Class:query() end

---A mark behind what it has been given so far.
---@param event? any to set; default: a new one
---@return any # Event
function Class:record_event(event) end

---Wait until it has done all it was given.
function Class:synchronize() end

---What it is given from now on comes after the event; the program does not wait.
---@param event any
function Class:wait_event(event) end

---What it is given from now on comes after all that another stream has been given.
---@param other any
function Class:wait_stream(other) end

---Run fn(...) with what it gives the GPU going to this stream; all as before afterwards, after an error too. Backward
---goes to the stream in use where it is called.
---@param fn function
---@return any # fn's results
function Class:with(fn, ...) end

end

do
---@class amp.data.DataLoader
local Class = {}

---Iterate over the batches of an epoch, or over those left of one that was
---loaded by load_state_dict. A second `iter` before the end starts a new epoch.
---@return function # that gives the tensors of the next batch, nil at the end
function Class:iter() end

---Take a saved place: the next `iter` goes on from there.
---@param state any
function Class:load_state_dict(state) end

---Number of batches of an epoch.
function Class:size() end

---Where the loader stands: plain values and one tensor, for a checkpoint.
function Class:state_dict() end

end

do
---@class amp.data.DistributedSampler
local Class = {}

---This rank's indices of the epoch.
---@return amp.Tensor # int64
function Class:indices() end

---The indices one by one: `for i in sampler:iter() do`.
function Class:iter() end

---Which epoch comes: it says, with the seed, how examples are shuffled. Call it on all ranks before each epoch.
---@param n any
---@return any # self
function Class:set_epoch(n) end

---How many examples each rank gets.
function Class:size() end

end

do
---@class amp.data.ImageFolder
local Class = {}

---Image i: float32, channels x height x width from 0 to 1; and its label, from 1, an int64 scalar.
---@param i any
function Class:get(i) end

---Number of images.
function Class:size() end

end

do
---@class amp.data.TensorDataset
local Class = {}

---Examples by a vector of indices, gathered on each tensor's device.
---@param indices amp.Tensor int64, from 1
---@return amp.Tensor # ... one a tensor of the dataset
function Class:batch(indices) end

---Example i: one tensor of each.
---@param i any
function Class:get(i) end

---Number of examples.
function Class:size() end

end

do
---@class amp.data.TextDataset
local Class = {}

---Windows by a vector of indices: two of n x length.
---@param indices any
function Class:batch(indices) end

---Window i and the one a token later: int64 vectors.
---@param i any
function Class:get(i) end

---Number of windows.
function Class:size() end

end

do
---@class amp.data.Vocabulary
local Class = {}

---Numbers as text; words stand with spaces between them.
---@param numbers amp.Tensor|table
function Class:decode(numbers) end

---A text, or a list of tokens, as numbers.
---@param text any
---@return amp.Tensor # int64, from 1
function Class:encode(text) end

---Number of tokens.
function Class:size() end

end

do
---@class amp.nn.BatchNorm1d: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.BatchNorm2d: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.BatchNorm3d: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.Bilinear: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(in1_features).
function Class:reset_parameters() end

end

do
---@class amp.nn.Embedding: amp.nn.Module
local Class = {}

---Draw the table anew: normal, the row `padding_idx` zeros.
function Class:reset_parameters() end

end

do
---@class amp.nn.EmbeddingBag: amp.nn.Module
local Class = {}

---Draw the table anew: normal, the row `padding_idx` zeros.
function Class:reset_parameters() end

end

do
---@class amp.nn.GRU: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Class:reset_parameters() end

end

do
---@class amp.nn.GRUCell: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Class:reset_parameters() end

end

do
---@class amp.nn.GroupNorm: amp.nn.Module
local Class = {}

---self(x + residual) and x + residual: what stands between two blocks of a network whose norms come first (pre-norm).
---Values and gradients are those of the two ops, within a rounding for 16-bit inputs. It is one op: on a GPU the sum isn't read again for the norm, and in
---backward one pass makes the gradients of x and of the residual, each in its dtype.
---@param x amp.Tensor ... x shape
---@param residual amp.Tensor what is added to x, broadcast as in `+`
---@param dtype? string of the first result, whose gradient then has it too: where a region's product alone uses that one, the region's dtype saves the float32 values ('float8', of a region of 8 bits: its base). Rounded once, as a cast's result is.
---@return amp.Tensor # the sum, normalised
---@return amp.Tensor # x + residual
function Class:forward_add(x, residual, dtype) end

end

do
---@class amp.nn.Identity: amp.nn.Module
local Class = {}

---Which class an instance is of, or derives from.
---@param class any
function Class:is(class) end

---Register a tensor that belongs to the state but is not trained.
---@param name string field name
---@param tensor amp.Tensor or nil
---@param given? table persistent (true: it is in state_dict)
function Class:register_buffer(name, tensor, given) end

---Call fn(module, {arguments}, results...) after forward; what it returns replaces the results.
---@param fn any
---@return table # with remove()
function Class:register_forward_hook(fn) end

---Call fn(module, arguments...) before forward; what it returns replaces the arguments.
---@param fn any
---@return table # with remove()
function Class:register_forward_pre_hook(fn) end

---Register a parameter; it is made to require grad if it does not.
---@param name any
---@param tensor any
function Class:register_parameter(name, tensor) end

end

do
---@class amp.nn.InstanceNorm: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.InstanceNorm1d: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.InstanceNorm2d: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.InstanceNorm3d: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.LSTM: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Class:reset_parameters() end

end

do
---@class amp.nn.LSTMCell: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Class:reset_parameters() end

end

do
---@class amp.nn.LayerNorm: amp.nn.Module
local Class = {}

---self(x + residual) and x + residual: what stands between two blocks of a network whose norms come first (pre-norm).
---Values and gradients are those of the two ops, within a rounding for 16-bit inputs. It is one op: on a GPU the sum isn't read again for the norm, and in
---backward one pass makes the gradients of x and of the residual, each in its dtype.
---@param x amp.Tensor ... x shape
---@param residual amp.Tensor what is added to x, broadcast as in `+`
---@param dtype? string of the first result, whose gradient then has it too: where a region's product alone uses that one, the region's dtype saves the float32 values ('float8', of a region of 8 bits: its base). Rounded once, as a cast's result is.
---@return amp.Tensor # the sum, normalised
---@return amp.Tensor # x + residual
function Class:forward_add(x, residual, dtype) end

end

do
---@class amp.nn.Linear: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(in_features).
function Class:reset_parameters() end

end

do
---@class amp.nn.LocalResponseNorm: amp.nn.Module
local Class = {}

---self(x + residual) and x + residual: what stands between two blocks of a network whose norms come first (pre-norm).
---Values and gradients are those of the two ops, within a rounding for 16-bit inputs. It is one op: on a GPU the sum isn't read again for the norm, and in
---backward one pass makes the gradients of x and of the residual, each in its dtype.
---@param x amp.Tensor ... x shape
---@param residual amp.Tensor what is added to x, broadcast as in `+`
---@param dtype? string of the first result, whose gradient then has it too: where a region's product alone uses that one, the region's dtype saves the float32 values ('float8', of a region of 8 bits: its base). Rounded once, as a cast's result is.
---@return amp.Tensor # the sum, normalised
---@return amp.Tensor # x + residual
function Class:forward_add(x, residual, dtype) end

end

do
---@class amp.nn.Module
---@operator call: amp.Tensor
local Class = {}

---Call fn(module) on every module, children first.
---@param fn any
function Class:apply(fn) end

---All buffers (running statistics and the like): a list.
function Class:buffers() end

---Direct children, in order: a list.
function Class:children() end

---A copy of the module with everything in it: parameters and buffers anew, tied ones tied; mode, flags and hooks too.
---Gradients are not copied.
---@return any # nn.Module
function Class:clone() end

---Evaluation mode.
function Class:eval() end

---Write the graph that the module's last call ran as to exactly this path; amp.load_graph and C read it.
---@param path string
---@return any # nn.Module itself
function Class:export(path) end

---Floating-point parameters and buffers in float16 (bfloat16, float32, float64).
function Class:half() end

---Calls of the module run as a graph per set of input shapes, gradients included (MXNet's hybridize). The module stays what
---it is: parameters, modes, loading. hybridize(false) undoes it.
---@param given? boolean|table false; or static_alloc, static_shape (a graph keeps its memory in any case; static_shape without static_alloc is an error, as in MXNet)
---@return any # nn.Module itself
function Class:hybridize(given) end

---Which class an instance is of, or derives from.
---@param class any
function Class:is(class) end

---Take values from a state dict: copied in place and cast, so optimizers stay valid.
---Nothing is changed when anything is wrong.
---@param state table name -> tensor
---@param given? table strict (true: names must agree exactly), names ('pytorch': the state counts a list's parts from 0)
---@return table # missing_keys and unexpected_keys, lists of names
function Class:load_state_dict(state, given) end

---The module itself and all modules in it: a list, each once.
function Class:modules() end

---Iterate over names and buffers.
function Class:named_buffers() end

---Iterate over names and direct children.
function Class:named_children() end

---Iterate over names ('' for the module itself) and modules.
function Class:named_modules() end

---Iterate over names ('1.weight') and parameters.
function Class:named_parameters() end

---All parameters of the module and its children: a list, each once.
function Class:parameters() end

---Register a tensor that belongs to the state but is not trained.
---@param name string field name
---@param tensor amp.Tensor or nil
---@param given? table persistent (true: it is in state_dict)
function Class:register_buffer(name, tensor, given) end

---Call fn(module, {arguments}, results...) after forward; what it returns replaces the results.
---@param fn any
---@return table # with remove()
function Class:register_forward_hook(fn) end

---Call fn(module, arguments...) before forward; what it returns replaces the arguments.
---@param fn any
---@return table # with remove()
function Class:register_forward_pre_hook(fn) end

---Register a parameter; it is made to require grad if it does not.
---@param name any
---@param tensor any
function Class:register_parameter(name, tensor) end

---Make all parameters require gradients, or stop it.
---@param on? boolean default true
function Class:requires_grad_(on) end

---Write that graph to prefix-0003.safetensors (for epoch 3).
---@param prefix string
---@param epoch number a whole number from 0
---@param given? table remove_amp_cast (true): the plain float32 graph
---@return any # nn.Module itself
function Class:save_checkpoint(prefix, epoch, given) end

---Parameters and persistent buffers by name. Of a network cast by amp.initialize: in float32,
---parameters that have masters being these.
---@return table # name -> detached tensor that shares the module's memory
function Class:state_dict() end

---Move to a device, or change the dtype of floating-point parameters and buffers, or both.
---Tensors keep their identity: an optimizer made before stays valid. With memory_format = 'channels_last', weights of
---four dimensions are laid out so ('contiguous': as they are made).
---@param ... any 'cuda', 'cuda:2', 'cpu', 'float32', 'bfloat16', ..., or {device =, dtype =, memory_format =}
function Class:to(...) end

---Training mode (dropout drops, batch norm uses and tracks batch statistics).
---@param on? boolean default true
function Class:train(on) end

---Set the gradients of all parameters to nil, or fill them with zeros; those of their float32 masters as well.
---@param given? table set_to_none (true)
function Class:zero_grad(given) end

end

do
---@class amp.nn.ModuleDict: amp.nn.Module
local Class = {}

---Add a module under a name. Chainable.
---@param name any
---@param module any
function Class:add(name, module) end

---The module of a name.
---@param name any
function Class:get(name) end

---Iterate over names and modules, in the order they were added. (pairs(dict) has the same ones, in no order.)
function Class:pairs() end

end

do
---@class amp.nn.ModuleList: amp.nn.Module
local Class = {}

---Append a module. Chainable.
---@param module any
---@param name? string its name in state dicts, and as a field, instead of its place
function Class:add(module, name) end

---PyTorch's name for add(module, name).
---@param name any
---@param module any
function Class:add_module(name, module) end

---Module i, negative from the end.
---@param i any
function Class:get(i) end

---Put a module before place i. Chainable.
---@param i any
---@param module any
function Class:insert(i, module) end

---Iterate over places and modules, as ipairs(list).
function Class:ipairs() end

---Take module i (the last by default) out of the list, and give it.
---@param i any
function Class:pop(i) end

---Number of modules, as #list.
function Class:size() end

end

do
---@class amp.nn.MultiheadAttention: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: Glorot's uniform filling for projections, biases zero.
function Class:reset_parameters() end

end

do
---@class amp.nn.RMSNorm: amp.nn.Module
local Class = {}

---self(x + residual) and x + residual: what stands between two blocks of a network whose norms come first (pre-norm).
---Values and gradients are those of the two ops, within a rounding for 16-bit inputs. It is one op: on a GPU the sum isn't read again for the norm, and in
---backward one pass makes the gradients of x and of the residual, each in its dtype.
---@param x amp.Tensor ... x shape
---@param residual amp.Tensor what is added to x, broadcast as in `+`
---@param dtype? string of the first result, whose gradient then has it too: where a region's product alone uses that one, the region's dtype saves the float32 values ('float8', of a region of 8 bits: its base). Rounded once, as a cast's result is.
---@return amp.Tensor # the sum, normalised
---@return amp.Tensor # x + residual
function Class:forward_add(x, residual, dtype) end

end

do
---@class amp.nn.RNN: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Class:reset_parameters() end

end

do
---@class amp.nn.RNNCell: amp.nn.Module
local Class = {}

---Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Class:reset_parameters() end

end

do
---@class amp.nn.RotaryEmbedding: amp.nn.Module
local Class = {}

---cos and sin of positions.
---@param length number how many; or, with `positions`, more than the largest of them
---@param given? table device, dtype (float32), offset (0: the first position), positions (int tensor, from 1; offset is not looked at)
---@return amp.Tensor # length x dim (positions' shape x dim)
---@return amp.Tensor # 
function Class:cos_sin(length, given) end

end

do
---@class amp.nn.Sequential: amp.nn.Module
local Class = {}

---Append a module. Chainable.
---@param module any
---@param name? string its name in state dicts, and as a field, instead of its place
function Class:add(module, name) end

---PyTorch's name for add(module, name).
---@param name any
---@param module any
function Class:add_module(name, module) end

---Module i, negative from the end.
---@param i any
function Class:get(i) end

---Put a module before place i. Chainable.
---@param i any
---@param module any
function Class:insert(i, module) end

---Iterate over places and modules, as ipairs(list).
function Class:ipairs() end

---Take module i (the last by default) out of the list, and give it.
---@param i any
function Class:pop(i) end

---Number of modules, as #list.
function Class:size() end

end

do
---@class amp.nn.SyncBatchNorm: amp.nn.Module
local Class = {}

---relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
---trips to memory between them.
---@param x amp.Tensor N x C x ...
---@param residual? amp.Tensor what is added before ReLU, broadcast as in `+`
---@return amp.Tensor # 
function Class:forward_relu(x, residual) end

---Parameters and running statistics as they were at first.
function Class:reset_parameters() end

---Running statistics as they were at first.
function Class:reset_running_stats() end

end

do
---@class amp.nn.Transformer: amp.nn.Module
local Class = {}

---Draw every parameter of two dimensions or more anew, by Glorot's uniform filling.
function Class:reset_parameters() end

end

do
---@class amp.nn.TransformerDecoder: amp.nn.Module
local Class = {}

---Draw every parameter of two dimensions or more anew, by Glorot's uniform filling.
function Class:reset_parameters() end

end

do
---@class amp.nn.TransformerDecoderLayer: amp.nn.Module
local Class = {}

---Draw every parameter of two dimensions or more anew, by Glorot's uniform filling.
function Class:reset_parameters() end

end

do
---@class amp.nn.TransformerEncoder: amp.nn.Module
local Class = {}

---Draw every parameter of two dimensions or more anew, by Glorot's uniform filling.
function Class:reset_parameters() end

end

do
---@class amp.nn.TransformerEncoderLayer: amp.nn.Module
local Class = {}

---Draw every parameter of two dimensions or more anew, by Glorot's uniform filling.
function Class:reset_parameters() end

end

do
---@class amp.nn.parallel.DistributedDataParallel: amp.nn.Module
local Class = {}

---Gradients of backwards inside fn stay this rank's own; the next backward outside sums what has been gathered.
---@param fn any
---@return any # what fn gives
function Class:no_sync(fn, ...) end

end

do
---@class amp.optim.swa.AveragedModel
local Class = {}

---Copy the averages into a network's weights and buffers.
---@param model any
---@return any # self
function Class:copy_to(model) end

---The same as update_parameters; an EMA made of a network takes that one by default.
---@param model any
function Class:update(model) end

---Take the network's weights into the average. The first update copies them.
---@param model any what the average was made of, or a network of the same shape
---@return any # self
function Class:update_parameters(model) end

end

do
---@class amp.optim.swa.EMA
local Class = {}

---Copy the averages into a network's weights and buffers.
---@param model any
---@return any # self
function Class:copy_to(model) end

---The same as update_parameters; an EMA made of a network takes that one by default.
---@param model any
function Class:update(model) end

---Take the network's weights into the average. The first update copies them.
---@param model any what the average was made of, or a network of the same shape
---@return any # self
function Class:update_parameters(model) end

end

do
---@class amp.text.TokenFile
local Class = {}

---What is left of this epoch, batch by batch, for `for b in set:batches() do`; called again at its end, the next epoch.
function Class:batches() end

---Close the files; twice is harmless.
function Class:close() end

---Go on where a state_dict was taken: the same batches follow.
---@param state any
function Class:load_state_dict(state) end

---The next batch; epochs follow each other without end.
---@return table # ids and labels, batch_size x length, int64; with eos also segment_ids and position_ids; as models take them
function Class:next() end

---Where it is: plain data for a checkpoint.
function Class:state_dict() end

end

do
---@class amp.text.models.BERT
local Class = {}

---Keep no values between layers for backward, but compute them again: less memory, a third more time.
---@param on any
function Class:gradient_checkpointing_enable(on) end

---Draw the weights anew: normal of deviation initializer_range, biases 0.
function Class:reset_parameters() end

---Write a folder that from_pretrained and transformers read. See Decoder.save_pretrained.
---@param dir any
function Class:save_pretrained(dir) end

---A file may lack the pooler.
---@param names any
function Class:without(names) end

end

do
---@class amp.text.models.GPT2
local Class = {}

---The sizes of the cache: layers, heads of keys, elements of a head.
function Class:cache_sizes() end

end

do
---@class amp.text.models.Llama
local Class = {}

---The sizes of the cache: layers, heads of keys, elements of a head.
function Class:cache_sizes() end

end

do
---@class amp.text.models.SentenceEncoder
local Class = {}

---Texts as vectors.
---@param texts table|string a list of strings, or one
---@param given? table batch_size (32)
---@return amp.Tensor # texts x size, of length 1, in float32 (one text: size)
function Class:encode(texts, given) end

end

---@class amp
local amp = {}

amp.float64 = 'float64'
amp.float32 = 'float32'
amp.float16 = 'float16'
amp.bfloat16 = 'bfloat16'
amp.int64 = 'int64'
amp.int32 = 'int32'
amp.int16 = 'int16'
amp.int8 = 'int8'
amp.uint8 = 'uint8'
amp.bool = 'bool'
amp.float8_e4m3 = 'float8_e4m3'
amp.float8_e5m2 = 'float8_e5m2'
amp.enabled = true

---Absolute value.
---@param input amp.Tensor
---@return amp.Tensor
function amp.abs(input) end

---Absolute value.
---@param input amp.Tensor
---@return amp.Tensor
function amp.abs_(input) end

---Inverse cosine, in [0, pi].
---@param input amp.Tensor
---@return amp.Tensor
function amp.acos(input) end

---Inverse cosine, in [0, pi].
---@param input amp.Tensor
---@return amp.Tensor
function amp.acos_(input) end

---Inverse hyperbolic cosine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.acosh(input) end

---Inverse hyperbolic cosine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.acosh_(input) end

---Mean of each of output_size windows that cover the input.
---@param input amp.Tensor
---@param output_size integer|integer[]
---@param options? table or by name: output_size
---@return amp.Tensor
function amp.adaptive_avg_pool1d(input, output_size, options) end

---Mean of each of output_size windows that cover the input.
---@param input amp.Tensor
---@param output_size integer|integer[]
---@param options? table or by name: output_size
---@return amp.Tensor
function amp.adaptive_avg_pool2d(input, output_size, options) end

---Mean of each of output_size windows that cover the input.
---@param input amp.Tensor
---@param output_size integer|integer[]
---@param options? table or by name: output_size
---@return amp.Tensor
function amp.adaptive_avg_pool3d(input, output_size, options) end

---Largest value of each of output_size windows that cover the input; also its place (from 1) if asked for.
---@param input amp.Tensor
---@param output_size integer|integer[]
---@param return_indices? boolean default 0
---@param options? table or by name: output_size, return_indices
---@return amp.Tensor, amp.Tensor
function amp.adaptive_max_pool1d(input, output_size, return_indices, options) end

---Largest value of each of output_size windows that cover the input; also its place (from 1) if asked for.
---@param input amp.Tensor
---@param output_size integer|integer[]
---@param return_indices? boolean default 0
---@param options? table or by name: output_size, return_indices
---@return amp.Tensor, amp.Tensor
function amp.adaptive_max_pool2d(input, output_size, return_indices, options) end

---Largest value of each of output_size windows that cover the input; also its place (from 1) if asked for.
---@param input amp.Tensor
---@param output_size integer|integer[]
---@param return_indices? boolean default 0
---@param options? table or by name: output_size, return_indices
---@return amp.Tensor, amp.Tensor
function amp.adaptive_max_pool3d(input, output_size, return_indices, options) end

---input + alpha * other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.add(input, other, alpha, options) end

---input + alpha * other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.add_(input, other, alpha, options) end

---layer_norm(input + residual), in dtype where it is given, and input + residual.
---@param input amp.Tensor
---@param residual amp.Tensor
---@param shape integer|integer[]
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param eps? number default 1e-5
---@param dtype? amp.dtype
---@param options? table or by name: shape, weight, bias, eps, dtype
---@return amp.Tensor, amp.Tensor
function amp.add_layer_norm(input, residual, shape, weight, bias, eps, dtype, options) end

---beta * input + alpha * the sum of batch1[i] @ batch2[i].
---@param input amp.Tensor
---@param batch1 amp.Tensor
---@param batch2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function amp.addbmm(input, batch1, batch2, beta, alpha, options) end

---input + value * tensor1 / tensor2.
---@param input amp.Tensor
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function amp.addcdiv(input, tensor1, tensor2, value, options) end

---input + value * tensor1 / tensor2.
---@param input amp.Tensor
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function amp.addcdiv_(input, tensor1, tensor2, value, options) end

---input + value * tensor1 * tensor2.
---@param input amp.Tensor
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function amp.addcmul(input, tensor1, tensor2, value, options) end

---input + value * tensor1 * tensor2.
---@param input amp.Tensor
---@param tensor1 amp.Tensor
---@param tensor2 amp.Tensor
---@param value? number default 1
---@param options? table or by name: value
---@return amp.Tensor
function amp.addcmul_(input, tensor1, tensor2, value, options) end

---beta * input + alpha * mat1 @ mat2.
---@param input amp.Tensor
---@param mat1 amp.Tensor
---@param mat2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function amp.addmm(input, mat1, mat2, beta, alpha, options) end

---beta * input + alpha * mat @ vec.
---@param input amp.Tensor
---@param mat amp.Tensor
---@param vec amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function amp.addmv(input, mat, vec, beta, alpha, options) end

---beta * input + alpha * outer(vec1, vec2).
---@param input amp.Tensor
---@param vec1 amp.Tensor
---@param vec2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function amp.addr(input, vec1, vec2, beta, alpha, options) end

---The grid of an affine map, for grid_sample: theta is N x 2 x 3 or N x 3 x 4.
---@param theta amp.Tensor
---@param size integer|integer[]
---@param align_corners? boolean default 0
---@param options? table or by name: size, align_corners
---@return amp.Tensor
function amp.affine_grid(theta, size, align_corners, options) end

---Every element is non-zero.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function amp.all(input, dim, keepdim, options) end

---dropout that keeps mean 0 and variance 1 (for SELU networks).
---@param input amp.Tensor
---@param p? number default 0.5
---@param training? boolean default 0
---@param options? table or by name: p, training
---@return amp.Tensor
function amp.alpha_dropout(input, p, training, options) end

---Largest value over dimensions; gradient shared among equals.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function amp.amax(input, dim, keepdim, options) end

---Smallest value over dimensions; gradient shared among equals.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function amp.amin(input, dim, keepdim, options) end

---Smallest and largest value.
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function amp.aminmax(input, dim, keepdim, options) end

---Some element is non-zero.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function amp.any(input, dim, keepdim, options) end

---Index (from 1) of the largest value.
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function amp.argmax(input, dim, keepdim, options) end

---Index (from 1) of the smallest value.
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function amp.argmin(input, dim, keepdim, options) end

---Indices that sort a dimension.
---@param input amp.Tensor
---@param dim? integer default -1
---@param descending? boolean default 0
---@param stable? boolean default 0
---@param options? table or by name: dim, descending, stable
---@return amp.Tensor
function amp.argsort(input, dim, descending, stable, options) end

---A view by sizes, strides and an offset (from 0) into the storage.
---@param input amp.Tensor
---@param size integer|integer[]
---@param stride integer|integer[]
---@param offset? integer
---@param options? table or by name: size, stride, offset
---@return amp.Tensor
function amp.as_strided(input, size, stride, offset, options) end

---Inverse sine, in [-pi/2, pi/2].
---@param input amp.Tensor
---@return amp.Tensor
function amp.asin(input) end

---Inverse sine, in [-pi/2, pi/2].
---@param input amp.Tensor
---@return amp.Tensor
function amp.asin_(input) end

---Inverse hyperbolic sine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.asinh(input) end

---Inverse hyperbolic sine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.asinh_(input) end

---Inverse tangent, in [-pi/2, pi/2].
---@param input amp.Tensor
---@return amp.Tensor
function amp.atan(input) end

---Inverse tangent, in [-pi/2, pi/2].
---@param input amp.Tensor
---@return amp.Tensor
function amp.atan_(input) end

---Angle of the point (other, input), in (-pi, pi].
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.atan2(input, other) end

---Angle of the point (other, input), in (-pi, pi].
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.atan2_(input, other) end

---Inverse hyperbolic tangent.
---@param input amp.Tensor
---@return amp.Tensor
function amp.atanh(input) end

---Inverse hyperbolic tangent.
---@param input amp.Tensor
---@return amp.Tensor
function amp.atanh_(input) end

---Mean of each window.
---@param input amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default 0
---@param count_include_pad? boolean default 1
---@param options? table or by name: kernel_size, stride, padding, ceil_mode, count_include_pad
---@return amp.Tensor
function amp.avg_pool1d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, options) end

---Mean of each window, or its sum over divisor_override.
---@param input amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default 0
---@param count_include_pad? boolean default 1
---@param divisor_override? integer
---@param options? table or by name: kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
---@return amp.Tensor
function amp.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, options) end

---Mean of each window, or its sum over divisor_override.
---@param input amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default 0
---@param count_include_pad? boolean default 1
---@param divisor_override? integer
---@param options? table or by name: kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
---@return amp.Tensor
function amp.avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, options) end

---beta * input + alpha * batch1 @ batch2.
---@param input amp.Tensor
---@param batch1 amp.Tensor
---@param batch2 amp.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@param options? table or by name: beta, alpha
---@return amp.Tensor
function amp.baddbmm(input, batch1, batch2, beta, alpha, options) end

---Normalise each channel (dimension 2); training updates the running statistics.
---@param input amp.Tensor
---@param running_mean? amp.Tensor
---@param running_var? amp.Tensor
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param training? boolean default 0
---@param momentum? number default 0.1
---@param eps? number default 1e-5
---@param options? table or by name: running_mean, running_var, weight, bias, training, momentum, eps
---@return amp.Tensor
function amp.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, options) end

---Binary cross entropy of logits, without overflow.
---@param input amp.Tensor
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param pos_weight? amp.Tensor
---@param options? table or by name: weight, reduction, pos_weight
---@return amp.Tensor
function amp.bce_with_logits(input, target, weight, reduction, pos_weight, options) end

---Fill with 1 with probability p, else 0.
---@param input amp.Tensor
---@param p? number default 0.5
---@param options? table or by name: p
---@return amp.Tensor
function amp.bernoulli_(input, p, options) end

---input1^T weight[k] input2 + bias[k] for each k; weight is out x in1 x in2.
---@param input1 amp.Tensor
---@param input2 amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param options? table or by name: bias
---@return amp.Tensor
function amp.bilinear(input1, input2, weight, bias, options) end

---Binary cross entropy of probabilities; use bce_with_logits in float16.
---@param input amp.Tensor
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: weight, reduction
---@return amp.Tensor
function amp.binary_cross_entropy(input, target, weight, reduction, options) end

---How often each of 1, 2, ... occurs in a vector, or the sum of its weights.
---@param input amp.Tensor
---@param weights? amp.Tensor
---@param minlength? integer default 0
---@param options? table or by name: weights, minlength
---@return amp.Tensor
function amp.bincount(input, weights, minlength, options) end

---Bits that both have.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_and(input, other) end

---Bits that both have.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_and_(input, other) end

---Bits moved up by other places.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_left_shift(input, other) end

---Bits moved up by other places.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_left_shift_(input, other) end

---All bits inverted; of a boolean the other one.
---@param input amp.Tensor
---@return amp.Tensor
function amp.bitwise_not(input) end

---All bits inverted; of a boolean the other one.
---@param input amp.Tensor
---@return amp.Tensor
function amp.bitwise_not_(input) end

---Bits that either has.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_or(input, other) end

---Bits that either has.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_or_(input, other) end

---Bits moved down by other places, the sign kept.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_right_shift(input, other) end

---Bits moved down by other places, the sign kept.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_right_shift_(input, other) end

---Bits that just one has.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_xor(input, other) end

---Bits that just one has.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.bitwise_xor_(input, other) end

---Products of two batches of matrices.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.bmm(input, other) end

---The number (from 1) of the bucket between sorted boundaries that each value falls into.
---@param input amp.Tensor|number
---@param boundaries amp.Tensor
---@param right? boolean default 0
---@param options? table or by name: right
---@return amp.Tensor
function amp.bucketize(input, boundaries, right, options) end

---Tensors joined along a dimension.
---@param tensors amp.Tensor[]
---@param dim? integer default 1
---@param options? table or by name: dim
---@return amp.Tensor
function amp.cat(tensors, dim, options) end

---Cube root.
---@param input amp.Tensor
---@return amp.Tensor
function amp.cbrt(input) end

---Cube root.
---@param input amp.Tensor
---@return amp.Tensor
function amp.cbrt_(input) end

---p-norms of the differences of each row of x1 and each of x2.
---@param x1 amp.Tensor
---@param x2 amp.Tensor
---@param p? number default 2
---@param compute_mode? 'use_mm_for_euclid_dist_if_necessary'|'use_mm_for_euclid_dist'|'donot_use_mm_for_euclid_dist' default 0
---@param options? table or by name: p, compute_mode
---@return amp.Tensor
function amp.cdist(x1, x2, p, compute_mode, options) end

---Round up.
---@param input amp.Tensor
---@return amp.Tensor
function amp.ceil(input) end

---Round up.
---@param input amp.Tensor
---@return amp.Tensor
function amp.ceil_(input) end

---input where positive, else alpha * (exp(input / alpha) - 1).
---@param input amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.celu(input, alpha, options) end

---input where positive, else alpha * (exp(input / alpha) - 1).
---@param input amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.celu_(input, alpha, options) end

---Product of several matrices in the cheapest order; the first and the last may be vectors.
---@param tensors amp.Tensor[]
---@return amp.Tensor
function amp.chain_matmul(tensors) end

---Channels (dimension 2) dealt out to groups in turn.
---@param input amp.Tensor
---@param groups integer
---@param options? table or by name: groups
---@return amp.Tensor
function amp.channel_shuffle(input, groups, options) end

---L of input = L L^T (upper: U^T U) for a symmetric positive-definite matrix, of which one triangle is read.
---@param input amp.Tensor
---@param upper? boolean default 0
---@param options? table or by name: upper
---@return amp.Tensor
function amp.cholesky(input, upper, options) end

---Inverse of A, given its Cholesky factor.
---@param input amp.Tensor
---@param upper? boolean default 0
---@param options? table or by name: upper
---@return amp.Tensor
function amp.cholesky_inverse(input, upper, options) end

---X of A X = input, given the Cholesky factor L of A.
---@param input amp.Tensor
---@param L amp.Tensor
---@param upper? boolean default 0
---@param options? table or by name: upper
---@return amp.Tensor
function amp.cholesky_solve(input, L, upper, options) end

---Values limited to [min, max].
---@param input amp.Tensor
---@param min? number
---@param max? number
---@param options? table or by name: min, max
---@return amp.Tensor
function amp.clamp(input, min, max, options) end

---Values limited to [min, max].
---@param input amp.Tensor
---@param min? number
---@param max? number
---@param options? table or by name: min, max
---@return amp.Tensor
function amp.clamp_(input, min, max, options) end

---Values not above max.
---@param input amp.Tensor
---@param max number
---@param options? table or by name: max
---@return amp.Tensor
function amp.clamp_max(input, max, options) end

---Values not above max.
---@param input amp.Tensor
---@param max number
---@param options? table or by name: max
---@return amp.Tensor
function amp.clamp_max_(input, max, options) end

---Values not below min.
---@param input amp.Tensor
---@param min number
---@param options? table or by name: min
---@return amp.Tensor
function amp.clamp_min(input, min, options) end

---Values not below min.
---@param input amp.Tensor
---@param min number
---@param options? table or by name: min
---@return amp.Tensor
function amp.clamp_min_(input, min, options) end

---A copy with its own storage.
---@param input amp.Tensor
---@param memory_format? 'preserve'|'contiguous'|'channels_last' default 0
---@param options? table or by name: memory_format
---@return amp.Tensor
function amp.clone(input, memory_format, options) end

---Columns of windows added back into an image of output_size.
---@param input amp.Tensor
---@param output_size integer|integer[]
---@param kernel_size integer|integer[]
---@param dilation? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param stride? integer|integer[] default 1
---@param options? table or by name: output_size, kernel_size, dilation, padding, stride
---@return amp.Tensor
function amp.col2im(input, output_size, kernel_size, dilation, padding, stride, options) end

---Condition number: norm of input times norm of its inverse, in the matrix norm p.
---@param input amp.Tensor
---@param p? number default 2
---@param options? table or by name: p
---@return amp.Tensor
function amp.cond(input, p, options) end

---The tensor itself if its layout is the asked one, else a copy.
---@param input amp.Tensor
---@param memory_format? 'contiguous'|'channels_last' default 0
---@param options? table or by name: memory_format
---@return amp.Tensor
function amp.contiguous(input, memory_format, options) end

---1-d cross-correlation; weight is out x in/groups x kL.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@param options? table or by name: bias, stride, padding, dilation, groups
---@return amp.Tensor
function amp.conv1d(input, weight, bias, stride, padding, dilation, groups, options) end

---2-d cross-correlation; weight is out x in/groups x kH x kW.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@param options? table or by name: bias, stride, padding, dilation, groups
---@return amp.Tensor
function amp.conv2d(input, weight, bias, stride, padding, dilation, groups, options) end

---3-d cross-correlation; weight is out x in/groups x kD x kH x kW.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@param options? table or by name: bias, stride, padding, dilation, groups
---@return amp.Tensor
function amp.conv3d(input, weight, bias, stride, padding, dilation, groups, options) end

---conv1d of time x batch x in; weight is kernel x in x out.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias amp.Tensor
---@param pad? integer default 0
---@param options? table or by name: pad
---@return amp.Tensor
function amp.conv_tbc(input, weight, bias, pad, options) end

---Gradient of conv1d in its input, as an op of its own; weight is in x out/groups x kL.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@param options? table or by name: bias, stride, padding, output_padding, groups, dilation
---@return amp.Tensor
function amp.conv_transpose1d(input, weight, bias, stride, padding, output_padding, groups, dilation, options) end

---Gradient of conv2d in its input, as an op of its own; weight is in x out/groups x kH x kW.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@param options? table or by name: bias, stride, padding, output_padding, groups, dilation
---@return amp.Tensor
function amp.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation, options) end

---Gradient of conv3d in its input, as an op of its own; weight is in x out/groups x kD x kH x kW.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@param options? table or by name: bias, stride, padding, output_padding, groups, dilation
---@return amp.Tensor
function amp.conv_transpose3d(input, weight, bias, stride, padding, output_padding, groups, dilation, options) end

---Copy src into the receiver, broadcast and cast to its dtype.
---@param input amp.Tensor
---@param src amp.Tensor
---@return amp.Tensor
function amp.copy_(input, src) end

---The size of input with the sign of other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.copysign(input, other) end

---The size of input with the sign of other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.copysign_(input, other) end

---Cosine of radians.
---@param input amp.Tensor
---@return amp.Tensor
function amp.cos(input) end

---Cosine of radians.
---@param input amp.Tensor
---@return amp.Tensor
function amp.cos_(input) end

---Hyperbolic cosine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.cosh(input) end

---Hyperbolic cosine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.cosh_(input) end

---1 - cosine of rows whose target is 1, max(0, cosine - margin) of those whose target is -1.
---@param input1 amp.Tensor
---@param input2 amp.Tensor
---@param target amp.Tensor
---@param margin? number default 0
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, reduction
---@return amp.Tensor
function amp.cosine_embedding_loss(input1, input2, target, margin, reduction, options) end

---Cosine of the angle between x1 and x2 along a dimension, norms being at least eps.
---@param x1 amp.Tensor
---@param x2 amp.Tensor
---@param dim? integer default 2
---@param eps? number default 1e-8
---@param options? table or by name: dim, eps
---@return amp.Tensor
function amp.cosine_similarity(x1, x2, dim, eps, options) end

---How many elements are not zero.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param options? table or by name: dim
---@return amp.Tensor
function amp.count_nonzero(input, dim, options) end

---Vector product along a dimension of size 3 (the first such if none is given).
---@param input amp.Tensor
---@param other amp.Tensor
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function amp.cross(input, other, dim, options) end

---Cross entropy of logits and labels (1..C along dimension 2) or probabilities.
---@param input amp.Tensor
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param ignore_index? integer default -100
---@param reduction? 'none'|'mean'|'sum' default 1
---@param label_smoothing? number default 0
---@param options? table or by name: weight, ignore_index, reduction, label_smoothing
---@return amp.Tensor
function amp.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing, options) end

---Negative log-likelihood of label sequences under all alignments; log_probs is T x N x C.
---@param log_probs amp.Tensor
---@param targets amp.Tensor
---@param input_lengths amp.Tensor
---@param target_lengths amp.Tensor
---@param blank? integer default 1
---@param reduction? 'none'|'mean'|'sum' default 1
---@param zero_infinity? boolean default 0
---@param options? table or by name: blank, reduction, zero_infinity
---@return amp.Tensor
function amp.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity, options) end

---The largest value so far along a dimension, and the index of its last place.
---@param input amp.Tensor
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor, amp.Tensor
function amp.cummax(input, dim, options) end

---The smallest value so far along a dimension, and the index of its last place.
---@param input amp.Tensor
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor, amp.Tensor
function amp.cummin(input, dim, options) end

---Running products along a dimension.
---@param input amp.Tensor
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function amp.cumprod(input, dim, dtype, options) end

---Running sums along a dimension.
---@param input amp.Tensor
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function amp.cumsum(input, dim, dtype, options) end

---Determinant.
---@param input amp.Tensor
---@return amp.Tensor
function amp.det(input) end

---A vector as a matrix's diagonal, or a matrix's diagonal as a vector.
---@param input amp.Tensor
---@param diagonal? integer default 0
---@param options? table or by name: diagonal
---@return amp.Tensor
function amp.diag(input, diagonal, options) end

---The last dimension as the diagonal of two dimensions, zeros elsewhere.
---@param input amp.Tensor
---@param offset? integer default 0
---@param dim1? integer default -2
---@param dim2? integer default -1
---@param options? table or by name: offset, dim1, dim2
---@return amp.Tensor
function amp.diag_embed(input, offset, dim1, dim2, options) end

---A diagonal, as the last dimension.
---@param input amp.Tensor
---@param offset? integer default 0
---@param dim1? integer default 1
---@param dim2? integer default 2
---@param options? table or by name: offset, dim1, dim2
---@return amp.Tensor
function amp.diagonal(input, offset, dim1, dim2, options) end

---Differences of neighbours, n times.
---@param input amp.Tensor
---@param n? integer default 1
---@param dim? integer default -1
---@param prepend? amp.Tensor
---@param append? amp.Tensor
---@param options? table or by name: n, dim, prepend, append
---@return amp.Tensor
function amp.diff(input, n, dim, prepend, append, options) end

---Derivative of lgamma.
---@param input amp.Tensor
---@return amp.Tensor
function amp.digamma(input) end

---Derivative of lgamma.
---@param input amp.Tensor
---@return amp.Tensor
function amp.digamma_(input) end

---p-norm of input - other.
---@param input amp.Tensor
---@param other amp.Tensor
---@param p? number default 2
---@param options? table or by name: p
---@return amp.Tensor
function amp.dist(input, other, p, options) end

---input / other; integers give float32.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.div(input, other) end

---input / other; integers give float32.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.div_(input, other) end

---Inner product of two vectors.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.dot(input, other) end

---Zero elements with probability p, scale the others by 1 / (1 - p).
---@param input amp.Tensor
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function amp.dropout(input, p, training, options) end

---Zero elements with probability p, scale the others by 1 / (1 - p).
---@param input amp.Tensor
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function amp.dropout_(input, p, training, options) end

---dropout of whole channels of N x C x L or C x L.
---@param input amp.Tensor
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function amp.dropout1d(input, p, training, options) end

---dropout of whole channels of N x C x H x W.
---@param input amp.Tensor
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function amp.dropout2d(input, p, training, options) end

---dropout of whole channels of N x C x D x H x W or C x D x H x W.
---@param input amp.Tensor
---@param p? number default 0.5
---@param training? boolean default 1
---@param options? table or by name: p, training
---@return amp.Tensor
function amp.dropout3d(input, p, training, options) end

---Tensors joined along dimension 3.
---@param tensors amp.Tensor[]
---@return amp.Tensor
function amp.dstack(tensors) end

---Eigenvalues (rising) and eigenvectors (columns) of a symmetric matrix, of which one triangle is read.
---@param input amp.Tensor
---@param UPLO? 'L'|'U' default 0
---@param options? table or by name: UPLO
---@return amp.Tensor, amp.Tensor
function amp.eigh(input, UPLO, options) end

---Eigenvalues (rising) of a symmetric matrix, of which one triangle is read.
---@param input amp.Tensor
---@param UPLO? 'L'|'U' default 0
---@param options? table or by name: UPLO
---@return amp.Tensor
function amp.eigvalsh(input, UPLO, options) end

---Products summed over the labels that the output lacks (Einstein's notation).
---@param tensors amp.Tensor[]
---@param subscripts integer|integer[]
---@param output? integer default 0
---@param options? table or by name: subscripts, output
---@return amp.Tensor
function amp.einsum(tensors, subscripts, output, options) end

---input where positive, else alpha * (exp(input) - 1).
---@param input amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.elu(input, alpha, options) end

---input where positive, else alpha * (exp(input) - 1).
---@param input amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.elu_(input, alpha, options) end

---Rows of weight by index; the row padding_idx gets no gradient.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param padding_idx? integer
---@param options? table or by name: padding_idx
---@return amp.Tensor
function amp.embedding(input, weight, padding_idx, options) end

---Sums, means or maxima of rows of weight by bags of indices; offsets (from 1) say where bags start in a vector.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param offsets? amp.Tensor
---@param mode? 'sum'|'mean'|'max' default 1
---@param per_sample_weights? amp.Tensor
---@param include_last_offset? boolean default 0
---@param padding_idx? integer
---@param options? table or by name: offsets, mode, per_sample_weights, include_last_offset, padding_idx
---@return amp.Tensor
function amp.embedding_bag(input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx, options) end

---Element-wise equality.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.eq(input, other) end

---Error function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.erf(input) end

---Error function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.erf_(input) end

---1 - erf(input), exact for large input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.erfc(input) end

---1 - erf(input), exact for large input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.erfc_(input) end

---Inverse error function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.erfinv(input) end

---Inverse error function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.erfinv_(input) end

---e to the input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.exp(input) end

---e to the input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.exp_(input) end

---2 to the input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.exp2(input) end

---2 to the input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.exp2_(input) end

---Dimensions of size 1 repeated without a copy; -1 keeps a size.
---@param input amp.Tensor
---@param shape integer|integer[]
---@param options? table or by name: shape
---@return amp.Tensor
function amp.expand(input, shape, options) end

---e to the input, minus 1, exact near 0.
---@param input amp.Tensor
---@return amp.Tensor
function amp.expm1(input) end

---e to the input, minus 1, exact near 0.
---@param input amp.Tensor
---@return amp.Tensor
function amp.expm1_(input) end

---Fill with exponentially distributed values of rate lambd.
---@param input amp.Tensor
---@param lambd? number default 1
---@param options? table or by name: lambd
---@return amp.Tensor
function amp.exponential_(input, lambd, options) end

---alpha_dropout of whole channels.
---@param input amp.Tensor
---@param p? number default 0.5
---@param training? boolean default 0
---@param options? table or by name: p, training
---@return amp.Tensor
function amp.feature_alpha_dropout(input, p, training, options) end

---Discrete Fourier transform of a complex tensor (last dimension real, imaginary), or with real of a real one.
---@param input amp.Tensor
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: n, dim, norm, real
---@return amp.Tensor
function amp.fft(input, n, dim, norm, real, options) end

---fft over two dimensions, the last ones unless dim says otherwise.
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function amp.fft2(input, s, dim, norm, real, options) end

---fft over several dimensions (all if neither s nor dim is given).
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function amp.fftn(input, s, dim, norm, real, options) end

---Frequency 0 moved to the middle of dimensions (all if none is given); complex: the last dimension stays.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param complex? boolean default 0
---@param options? table or by name: dim, complex
---@return amp.Tensor
function amp.fftshift(input, dim, complex, options) end

---Fill with a value.
---@param input amp.Tensor
---@param value number
---@param options? table or by name: value
---@return amp.Tensor
function amp.fill_(input, value, options) end

---Dimensions start_dim..end_dim joined into one.
---@param input amp.Tensor
---@param start_dim? integer default 1
---@param end_dim? integer default -1
---@param options? table or by name: start_dim, end_dim
---@return amp.Tensor
function amp.flatten(input, start_dim, end_dim, options) end

---Dimensions reversed (a copy).
---@param input amp.Tensor
---@param dims integer|integer[]
---@param options? table or by name: dims
---@return amp.Tensor
function amp.flip(input, dims, options) end

---Dimension 2 reversed.
---@param input amp.Tensor
---@return amp.Tensor
function amp.fliplr(input) end

---Dimension 1 reversed.
---@param input amp.Tensor
---@return amp.Tensor
function amp.flipud(input) end

---Round down.
---@param input amp.Tensor
---@return amp.Tensor
function amp.floor(input) end

---Round down.
---@param input amp.Tensor
---@return amp.Tensor
function amp.floor_(input) end

---input / other, rounded down.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.floor_divide(input, other) end

---input / other, rounded down.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.floor_divide_(input, other) end

---Remainder with the sign of input, as C's fmod.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.fmod(input, other) end

---Remainder with the sign of input, as C's fmod.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.fmod_(input, other) end

---What trunc takes away.
---@param input amp.Tensor
---@return amp.Tensor
function amp.frac(input) end

---What trunc takes away.
---@param input amp.Tensor
---@return amp.Tensor
function amp.frac_(input) end

---Gamma function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.gamma(input) end

---Gamma function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.gamma_(input) end

---out[i][j] = input[index[i][j]][j] for dim 1, and so on.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function amp.gather(input, dim, index, options) end

---Negative log-likelihood of normal variables of mean input and variance var.
---@param input amp.Tensor
---@param target amp.Tensor
---@param var amp.Tensor|number
---@param full? boolean default 0
---@param eps? number default 1e-6
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: full, eps, reduction
---@return amp.Tensor
function amp.gaussian_nll_loss(input, target, var, full, eps, reduction, options) end

---input >= other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.ge(input, other) end

---x times the normal distribution function of x.
---@param input amp.Tensor
---@param approximate? 'none'|'tanh' default 0
---@param options? table or by name: approximate
---@return amp.Tensor
function amp.gelu(input, approximate, options) end

---First half of a dimension times the sigmoid of the second.
---@param input amp.Tensor
---@param dim? integer default -1
---@param options? table or by name: dim
---@return amp.Tensor
function amp.glu(input, dim, options) end

---input read at the places of grid: (x, y) or (x, y, z) from -1 to 1 across the input.
---@param input amp.Tensor
---@param grid amp.Tensor
---@param mode? 'bilinear'|'nearest'|'bicubic' default 0
---@param padding_mode? 'zeros'|'border'|'reflection' default 0
---@param align_corners? boolean default 0
---@param options? table or by name: mode, padding_mode, align_corners
---@return amp.Tensor
function amp.grid_sample(input, grid, mode, padding_mode, align_corners, options) end

---Normalise each of num_groups groups of channels (dimension 2) of each sample.
---@param input amp.Tensor
---@param num_groups integer
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param eps? number default 1e-5
---@param options? table or by name: num_groups, weight, bias, eps
---@return amp.Tensor
function amp.group_norm(input, num_groups, weight, bias, eps, options) end

---Layers of GRUs over a sequence; gives the results and the last states.
---@param input amp.Tensor
---@param hx amp.Tensor
---@param weights amp.Tensor[]
---@param num_layers? integer default 1
---@param bias? boolean default 1
---@param batch_first? boolean default 0
---@param bidirectional? boolean default 0
---@param dropout? number default 0
---@param training? boolean default 0
---@param packed? boolean default 0
---@param options? table or by name: num_layers, bias, batch_first, bidirectional, dropout, training, packed
---@return amp.Tensor, amp.Tensor
function amp.gru(input, hx, weights, num_layers, bias, batch_first, bidirectional, dropout, training, packed, options) end

---One step of a GRU.
---@param input amp.Tensor
---@param hx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor
function amp.gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh, options) end

---input > other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.gt(input, other) end

---0 where abs(input) <= lambd.
---@param input amp.Tensor
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function amp.hardshrink(input, lambd, options) end

---0 where abs(input) <= lambd.
---@param input amp.Tensor
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function amp.hardshrink_(input, lambd, options) end

---input / 6 + 1/2, limited to [0, 1].
---@param input amp.Tensor
---@return amp.Tensor
function amp.hardsigmoid(input) end

---input / 6 + 1/2, limited to [0, 1].
---@param input amp.Tensor
---@return amp.Tensor
function amp.hardsigmoid_(input) end

---input * hardsigmoid(input).
---@param input amp.Tensor
---@return amp.Tensor
function amp.hardswish(input) end

---input * hardsigmoid(input).
---@param input amp.Tensor
---@return amp.Tensor
function amp.hardswish_(input) end

---Values limited to [min_val, max_val].
---@param input amp.Tensor
---@param min_val? number default -1
---@param max_val? number default 1
---@param options? table or by name: min_val, max_val
---@return amp.Tensor
function amp.hardtanh(input, min_val, max_val, options) end

---Values limited to [min_val, max_val].
---@param input amp.Tensor
---@param min_val? number default -1
---@param max_val? number default 1
---@param options? table or by name: min_val, max_val
---@return amp.Tensor
function amp.hardtanh_(input, min_val, max_val, options) end

---input where target is 1, max(0, margin - input) where it is -1.
---@param input amp.Tensor
---@param target amp.Tensor
---@param margin? number default 1
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, reduction
---@return amp.Tensor
function amp.hinge_embedding_loss(input, target, margin, reduction, options) end

---Counts of the elements in equal bins from min to max (the extremes of input if both are 0).
---@param input amp.Tensor
---@param bins? integer default 100
---@param min? number default 0
---@param max? number default 0
---@param options? table or by name: bins, min, max
---@return amp.Tensor
function amp.histc(input, bins, min, max, options) end

---Tensors joined along dimension 2, vectors along 1.
---@param tensors amp.Tensor[]
---@return amp.Tensor
function amp.hstack(tensors) end

---Half the square where input and target differ by less than delta, else a line of that slope, averaged.
---@param input amp.Tensor
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param delta? number default 1
---@param options? table or by name: reduction, delta
---@return amp.Tensor
function amp.huber_loss(input, target, reduction, delta, options) end

---Square root of input^2 + other^2, without overflow.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.hypot(input, other) end

---Square root of input^2 + other^2, without overflow.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.hypot_(input, other) end

---Inverse of fft.
---@param input amp.Tensor
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: n, dim, norm, real
---@return amp.Tensor
function amp.ifft(input, n, dim, norm, real, options) end

---Inverse of fft2.
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function amp.ifft2(input, s, dim, norm, real, options) end

---Inverse of fftn.
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param real? boolean default 0
---@param options? table or by name: s, dim, norm, real
---@return amp.Tensor
function amp.ifftn(input, s, dim, norm, real, options) end

---Inverse of fftshift.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param complex? boolean default 0
---@param options? table or by name: dim, complex
---@return amp.Tensor
function amp.ifftshift(input, dim, complex, options) end

---Windows of an image as columns: N x C kH kW x windows.
---@param input amp.Tensor
---@param kernel_size integer|integer[]
---@param dilation? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param stride? integer|integer[] default 1
---@param options? table or by name: kernel_size, dilation, padding, stride
---@return amp.Tensor
function amp.im2col(input, kernel_size, dilation, padding, stride, options) end

---input with alpha * src added at indices of a dimension.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: dim, alpha
---@return amp.Tensor
function amp.index_add(input, dim, index, src, alpha, options) end

---input with alpha * src added at indices of a dimension.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param alpha? number default 1
---@param options? table or by name: dim, alpha
---@return amp.Tensor
function amp.index_add_(input, dim, index, src, alpha, options) end

---A copy of input with source written at indices of a dimension.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param source amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function amp.index_copy(input, dim, index, source, options) end

---A copy of input with source written at indices of a dimension.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param source amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function amp.index_copy_(input, dim, index, source, options) end

---A copy of input with a value at indices of a dimension.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param value number
---@param options? table or by name: dim, value
---@return amp.Tensor
function amp.index_fill(input, dim, index, value, options) end

---A copy of input with a value at indices of a dimension.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param value number
---@param options? table or by name: dim, value
---@return amp.Tensor
function amp.index_fill_(input, dim, index, value, options) end

---A copy of input with values at index tensors.
---@param input amp.Tensor
---@param indices amp.Tensor[]
---@param values amp.Tensor
---@param accumulate? boolean default 0
---@param dims integer|integer[]
---@param options? table or by name: accumulate, dims
---@return amp.Tensor
function amp.index_put(input, indices, values, accumulate, dims, options) end

---A copy of input with values at index tensors.
---@param input amp.Tensor
---@param indices amp.Tensor[]
---@param values amp.Tensor
---@param accumulate? boolean default 0
---@param dims integer|integer[]
---@param options? table or by name: accumulate, dims
---@return amp.Tensor
function amp.index_put_(input, indices, values, accumulate, dims, options) end

---Elements of a dimension by a vector of indices.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function amp.index_select(input, dim, index, options) end

---Inner products along the last dimensions of both.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.inner(input, other) end

---Normalise each channel (dimension 2) of each sample, by its own statistics or the running ones.
---@param input amp.Tensor
---@param running_mean? amp.Tensor
---@param running_var? amp.Tensor
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param use_input_stats? boolean default 1
---@param momentum? number default 0.1
---@param eps? number default 1e-5
---@param options? table or by name: running_mean, running_var, weight, bias, use_input_stats, momentum, eps
---@return amp.Tensor
function amp.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps, options) end

---The spatial dimensions resampled to a size or by a factor.
---@param input amp.Tensor
---@param size? integer|integer[]
---@param scale_factor? number[]
---@param mode? 'nearest'|'linear'|'bilinear'|'bicubic'|'trilinear'|'area'|'nearest-exact' default 0
---@param align_corners? boolean
---@param recompute_scale_factor? boolean
---@param antialias? boolean default 0
---@param options? table or by name: size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
---@return amp.Tensor
function amp.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias, options) end

---Inverse of a square matrix; an error where it is singular.
---@param input amp.Tensor
---@return amp.Tensor
function amp.inverse(input) end

---Inverse of rfft: n real values (twice the size less 2 if n is not given).
---@param input amp.Tensor
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: n, dim, norm
---@return amp.Tensor
function amp.irfft(input, n, dim, norm, options) end

---Inverse of rfft2.
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function amp.irfft2(input, s, dim, norm, options) end

---Inverse of rfftn.
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function amp.irfftn(input, s, dim, norm, options) end

---abs(input - other) <= atol + rtol * abs(other).
---@param input amp.Tensor
---@param other amp.Tensor
---@param rtol? number default 1e-5
---@param atol? number default 1e-8
---@param equal_nan? boolean default 0
---@param options? table or by name: rtol, atol, equal_nan
---@return amp.Tensor
function amp.isclose(input, other, rtol, atol, equal_nan, options) end

---Is neither NaN nor infinite.
---@param input amp.Tensor
---@return amp.Tensor
function amp.isfinite(input) end

---Whether each element is one of the test elements.
---@param elements amp.Tensor
---@param test_elements amp.Tensor|number
---@param assume_unique? boolean default 0
---@param invert? boolean default 0
---@param options? table or by name: assume_unique, invert
---@return amp.Tensor
function amp.isin(elements, test_elements, assume_unique, invert, options) end

---Is infinite.
---@param input amp.Tensor
---@return amp.Tensor
function amp.isinf(input) end

---Is NaN.
---@param input amp.Tensor
---@return amp.Tensor
function amp.isnan(input) end

---target * (log(target) - input), input being log-probabilities.
---@param input amp.Tensor
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum'|'batchmean' default 1
---@param log_target? boolean default 0
---@param options? table or by name: reduction, log_target
---@return amp.Tensor
function amp.kl_div(input, target, reduction, log_target, options) end

---Kronecker product.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.kron(input, other) end

---The k-th smallest value of a dimension, and its index.
---@param input amp.Tensor
---@param k integer
---@param dim? integer default -1
---@param keepdim? boolean default 0
---@param options? table or by name: k, dim, keepdim
---@return amp.Tensor, amp.Tensor
function amp.kthvalue(input, k, dim, keepdim, options) end

---Absolute difference, averaged.
---@param input amp.Tensor
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function amp.l1_loss(input, target, reduction, options) end

---Normalise over the last dimensions, which have the given shape.
---@param input amp.Tensor
---@param shape integer|integer[]
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param eps? number default 1e-5
---@param options? table or by name: shape, weight, bias, eps
---@return amp.Tensor
function amp.layer_norm(input, shape, weight, bias, eps, options) end

---input <= other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.le(input, other) end

---input where positive, else negative_slope * input.
---@param input amp.Tensor
---@param negative_slope? number default 0.01
---@param options? table or by name: negative_slope
---@return amp.Tensor
function amp.leaky_relu(input, negative_slope, options) end

---input where positive, else negative_slope * input.
---@param input amp.Tensor
---@param negative_slope? number default 0.01
---@param options? table or by name: negative_slope
---@return amp.Tensor
function amp.leaky_relu_(input, negative_slope, options) end

---input + weight * (end - input).
---@param input amp.Tensor
---@param end_ amp.Tensor
---@param weight amp.Tensor|number
---@return amp.Tensor
function amp.lerp(input, end_, weight) end

---input + weight * (end - input).
---@param input amp.Tensor
---@param end_ amp.Tensor
---@param weight amp.Tensor|number
---@return amp.Tensor
function amp.lerp_(input, end_, weight) end

---log of the absolute value of the gamma function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.lgamma(input) end

---log of the absolute value of the gamma function.
---@param input amp.Tensor
---@return amp.Tensor
function amp.lgamma_(input) end

---input @ weight^T + bias; weight is out x in.
---@param input amp.Tensor
---@param weight amp.Tensor
---@param bias? amp.Tensor
---@param options? table or by name: bias
---@return amp.Tensor
function amp.linear(input, weight, bias, options) end

---input over (k + alpha * mean of the squares of size neighbouring channels)^beta.
---@param input amp.Tensor
---@param size integer
---@param alpha? number default 1e-4
---@param beta? number default 0.75
---@param k? number default 1
---@param options? table or by name: size, alpha, beta, k
---@return amp.Tensor
function amp.local_response_norm(input, size, alpha, beta, k, options) end

---Natural logarithm.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log(input) end

---Natural logarithm.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log_(input) end

---Logarithm to base 10.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log10(input) end

---Logarithm to base 10.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log10_(input) end

---log(1 + input), exact near 0.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log1p(input) end

---log(1 + input), exact near 0.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log1p_(input) end

---Logarithm to base 2.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log2(input) end

---Logarithm to base 2.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log2_(input) end

---log(sigmoid(input)) without overflow.
---@param input amp.Tensor
---@return amp.Tensor
function amp.log_sigmoid(input) end

---log of softmax, without overflow.
---@param input amp.Tensor
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function amp.log_softmax(input, dim, dtype, options) end

---log(exp(input) + exp(other)), without overflow.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.logaddexp(input, other) end

---log of the running sums of exp along a dimension, without overflow.
---@param input amp.Tensor
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor
function amp.logcumsumexp(input, dim, options) end

---Logarithm of the determinant; NaN where it is negative.
---@param input amp.Tensor
---@return amp.Tensor
function amp.logdet(input) end

---Both are non-zero.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.logical_and(input, other) end

---Is zero.
---@param input amp.Tensor
---@return amp.Tensor
function amp.logical_not(input) end

---Either is non-zero.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.logical_or(input, other) end

---Just one is non-zero.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.logical_xor(input, other) end

---log(input / (1 - input)), input first limited to [eps, 1 - eps].
---@param input amp.Tensor
---@param eps? number
---@param options? table or by name: eps
---@return amp.Tensor
function amp.logit(input, eps, options) end

---log(input / (1 - input)), input first limited to [eps, 1 - eps].
---@param input amp.Tensor
---@param eps? number
---@param options? table or by name: eps
---@return amp.Tensor
function amp.logit_(input, eps, options) end

---log of the sum of exp, without overflow.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor
function amp.logsumexp(input, dim, keepdim, options) end

---p-norm of each window, p being norm_type.
---@param input amp.Tensor
---@param norm_type number
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param ceil_mode? boolean default 0
---@param options? table or by name: norm_type, kernel_size, stride, ceil_mode
---@return amp.Tensor
function amp.lp_pool1d(input, norm_type, kernel_size, stride, ceil_mode, options) end

---p-norm of each window, p being norm_type.
---@param input amp.Tensor
---@param norm_type number
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param ceil_mode? boolean default 0
---@param options? table or by name: norm_type, kernel_size, stride, ceil_mode
---@return amp.Tensor
function amp.lp_pool2d(input, norm_type, kernel_size, stride, ceil_mode, options) end

---p-norm of each window, p being norm_type.
---@param input amp.Tensor
---@param norm_type number
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param ceil_mode? boolean default 0
---@param options? table or by name: norm_type, kernel_size, stride, ceil_mode
---@return amp.Tensor
function amp.lp_pool3d(input, norm_type, kernel_size, stride, ceil_mode, options) end

---Layers of LSTMs over a sequence; gives the results, the last h and the last c.
---@param input amp.Tensor
---@param hx amp.Tensor
---@param cx amp.Tensor
---@param weights amp.Tensor[]
---@param num_layers? integer default 1
---@param bias? boolean default 1
---@param batch_first? boolean default 0
---@param bidirectional? boolean default 0
---@param dropout? number default 0
---@param training? boolean default 0
---@param packed? boolean default 0
---@param proj_size? integer default 0
---@param options? table or by name: num_layers, bias, batch_first, bidirectional, dropout, training, packed, proj_size
---@return amp.Tensor, amp.Tensor, amp.Tensor
function amp.lstm(input, hx, cx, weights, num_layers, bias, batch_first, bidirectional, dropout, training, packed, proj_size, options) end

---One step of an LSTM; gives the new h and c.
---@param input amp.Tensor
---@param hx amp.Tensor
---@param cx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor, amp.Tensor
function amp.lstm_cell(input, hx, cx, w_ih, w_hh, b_ih, b_hh, options) end

---The smallest X that makes A X - B smallest, and, if A has more rows than columns, the sums of squares left in each column.
---@param A amp.Tensor
---@param B amp.Tensor
---@param rcond? number
---@param options? table or by name: rcond
---@return amp.Tensor, amp.Tensor
function amp.lstsq(A, B, rcond, options) end

---input < other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.lt(input, other) end

---max(0, margin - target * (input1 - input2)), targets being 1 or -1.
---@param input1 amp.Tensor
---@param input2 amp.Tensor
---@param target amp.Tensor
---@param margin? number default 0
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, reduction
---@return amp.Tensor
function amp.margin_ranking_loss(input1, input2, target, margin, reduction, options) end

---value where mask is true. An error if value does not fit the dtype.
---@param input amp.Tensor
---@param mask amp.Tensor
---@param value number
---@param options? table or by name: value
---@return amp.Tensor
function amp.masked_fill(input, mask, value, options) end

---value where mask is true. An error if value does not fit the dtype.
---@param input amp.Tensor
---@param mask amp.Tensor
---@param value number
---@param options? table or by name: value
---@return amp.Tensor
function amp.masked_fill_(input, mask, value, options) end

---A copy of input with the elements of source, in order, where mask is true.
---@param input amp.Tensor
---@param mask amp.Tensor
---@param source amp.Tensor
---@return amp.Tensor
function amp.masked_scatter(input, mask, source) end

---A copy of input with the elements of source, in order, where mask is true.
---@param input amp.Tensor
---@param mask amp.Tensor
---@param source amp.Tensor
---@return amp.Tensor
function amp.masked_scatter_(input, mask, source) end

---The elements where mask is true, as a vector.
---@param input amp.Tensor
---@param mask amp.Tensor
---@return amp.Tensor
function amp.masked_select(input, mask) end

---Matrix product; batches broadcast; vectors as in PyTorch.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.matmul(input, other) end

---Exponential of a square matrix.
---@param input amp.Tensor
---@return amp.Tensor
function amp.matrix_exp(input) end

---Norm of matrices in two dimensions (the last ones if none are given): Frobenius without ord, 0: nuclear, 1 and infinity: largest sum of a column and of a row, 2: spectral; negative: smallest.
---@param input amp.Tensor
---@param ord? number
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: ord, dim, keepdim, dtype
---@return amp.Tensor
function amp.matrix_norm(input, ord, dim, keepdim, dtype, options) end

---n-th power of a square matrix; a negative n takes the inverse.
---@param input amp.Tensor
---@param n integer
---@param options? table or by name: n
---@return amp.Tensor
function amp.matrix_power(input, n, options) end

---Number of singular values above atol and rtol times the largest.
---@param input amp.Tensor
---@param atol? number
---@param rtol? number
---@param hermitian? boolean default 0
---@param options? table or by name: atol, rtol, hermitian
---@return amp.Tensor
function amp.matrix_rank(input, atol, rtol, hermitian, options) end

---Largest value; with a dimension also its index (from 1).
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function amp.max(input, dim, keepdim, options) end

---Largest value of each window; also its place (from 1) if asked for.
---@param input amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default 0
---@param return_indices? boolean default 0
---@param options? table or by name: kernel_size, stride, padding, dilation, ceil_mode, return_indices
---@return amp.Tensor, amp.Tensor
function amp.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, options) end

---Largest value of each window; also its place (from 1, in the flattened plane) if asked for.
---@param input amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default 0
---@param return_indices? boolean default 0
---@param options? table or by name: kernel_size, stride, padding, dilation, ceil_mode, return_indices
---@return amp.Tensor, amp.Tensor
function amp.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, options) end

---Largest value of each window; also its place (from 1, in the flattened volume) if asked for.
---@param input amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default 0
---@param return_indices? boolean default 0
---@param options? table or by name: kernel_size, stride, padding, dilation, ceil_mode, return_indices
---@return amp.Tensor, amp.Tensor
function amp.max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, options) end

---Zeros with input at the places that max_pool1d gave.
---@param input amp.Tensor
---@param indices amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param output_size? integer|integer[]
---@param options? table or by name: kernel_size, stride, padding, output_size
---@return amp.Tensor
function amp.max_unpool1d(input, indices, kernel_size, stride, padding, output_size, options) end

---Zeros with input at the places that max_pool2d gave.
---@param input amp.Tensor
---@param indices amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param output_size? integer|integer[]
---@param options? table or by name: kernel_size, stride, padding, output_size
---@return amp.Tensor
function amp.max_unpool2d(input, indices, kernel_size, stride, padding, output_size, options) end

---Zeros with input at the places that max_pool3d gave.
---@param input amp.Tensor
---@param indices amp.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param output_size? integer|integer[]
---@param options? table or by name: kernel_size, stride, padding, output_size
---@return amp.Tensor
function amp.max_unpool3d(input, indices, kernel_size, stride, padding, output_size, options) end

---The larger of both; NaN if either is.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.maximum(input, other) end

---Mean over dimensions, accumulated in float32.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function amp.mean(input, dim, keepdim, dtype, options) end

---The lower of the middle values, NaN if there is one; with a dimension also its index.
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function amp.median(input, dim, keepdim, options) end

---Smallest value; with a dimension also its index (from 1).
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function amp.min(input, dim, keepdim, options) end

---The smaller of both; NaN if either is.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.minimum(input, other) end

---input * tanh(softplus(input)).
---@param input amp.Tensor
---@return amp.Tensor
function amp.mish(input) end

---input * tanh(softplus(input)).
---@param input amp.Tensor
---@return amp.Tensor
function amp.mish_(input) end

---Product of two matrices.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.mm(input, other) end

---Remainder with the sign of other, as Lua's %.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.mod(input, other) end

---Remainder with the sign of other, as Lua's %.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.mod_(input, other) end

---The smallest of the most frequent values of a dimension, and the index of its last place.
---@param input amp.Tensor
---@param dim? integer default -1
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function amp.mode(input, dim, keepdim, options) end

---Dimensions moved to other places, the others keeping their order.
---@param input amp.Tensor
---@param source integer|integer[]
---@param destination integer|integer[]
---@param options? table or by name: source, destination
---@return amp.Tensor
function amp.movedim(input, source, destination, options) end

---Squared difference, averaged.
---@param input amp.Tensor
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function amp.mse_loss(input, target, reduction, options) end

---input * other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.mul(input, other) end

---input * other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.mul_(input, other) end

---Attention of several heads between projections; also the attention weights if asked for.
---@param query amp.Tensor
---@param key amp.Tensor
---@param value amp.Tensor
---@param weights amp.Tensor[]
---@param parts integer
---@param num_heads integer
---@param add_zero_attn? boolean default 0
---@param dropout_p? number default 0
---@param training? boolean default 1
---@param need_weights? boolean default 1
---@param average_attn_weights? boolean default 1
---@param is_causal? boolean default 0
---@param batch_first? boolean default 0
---@param options? table or by name: parts, num_heads, add_zero_attn, dropout_p, training, need_weights, average_attn_weights, is_causal, batch_first
---@return amp.Tensor, amp.Tensor
function amp.multi_head_attention(query, key, value, weights, parts, num_heads, add_zero_attn, dropout_p, training, need_weights, average_attn_weights, is_causal, batch_first, options) end

---max(0, margin - input at the label + input)^p over the other classes; labels from 1.
---@param input amp.Tensor
---@param target amp.Tensor
---@param p? integer default 1
---@param margin? number default 1
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: p, margin, weight, reduction
---@return amp.Tensor
function amp.multi_margin_loss(input, target, p, margin, weight, reduction, options) end

---max(0, 1 - input at a label + input at no label), summed; a row's labels (from 1) end at the first 0.
---@param input amp.Tensor
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function amp.multilabel_margin_loss(input, target, reduction, options) end

---Binary cross entropy of logits, averaged over the classes of each row.
---@param input amp.Tensor
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: weight, reduction
---@return amp.Tensor
function amp.multilabel_soft_margin_loss(input, target, weight, reduction, options) end

---Indices (from 1) drawn with the weights in each row of input.
---@param input amp.Tensor
---@param num_samples integer
---@param replacement? boolean default 0
---@param options? table or by name: num_samples, replacement
---@return amp.Tensor
function amp.multinomial(input, num_samples, replacement, options) end

---Matrix times vector.
---@param input amp.Tensor
---@param vec amp.Tensor
---@return amp.Tensor
function amp.mv(input, vec) end

---NaN replaced by nan (0), infinities by posinf and neginf (the dtype's largest).
---@param input amp.Tensor
---@param nan? number
---@param posinf? number
---@param neginf? number
---@param options? table or by name: nan, posinf, neginf
---@return amp.Tensor
function amp.nan_to_num(input, nan, posinf, neginf, options) end

---NaN replaced by nan (0), infinities by posinf and neginf (the dtype's largest).
---@param input amp.Tensor
---@param nan? number
---@param posinf? number
---@param neginf? number
---@param options? table or by name: nan, posinf, neginf
---@return amp.Tensor
function amp.nan_to_num_(input, nan, posinf, neginf, options) end

---Mean over dimensions of what is not NaN.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function amp.nanmean(input, dim, keepdim, dtype, options) end

---The lower of the middle values that are not NaN; with a dimension also its index.
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param options? table or by name: dim, keepdim
---@return amp.Tensor, amp.Tensor
function amp.nanmedian(input, dim, keepdim, options) end

---Quantiles of what is not NaN.
---@param input amp.Tensor
---@param q amp.Tensor|number
---@param dim? integer
---@param keepdim? boolean default 0
---@param interpolation? 'linear'|'lower'|'higher'|'midpoint'|'nearest' default 0
---@param options? table or by name: dim, keepdim, interpolation
---@return amp.Tensor
function amp.nanquantile(input, q, dim, keepdim, interpolation, options) end

---Sum over dimensions, NaN counting as 0.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function amp.nansum(input, dim, keepdim, dtype, options) end

---length elements of a dimension from start on (from 1).
---@param input amp.Tensor
---@param dim integer
---@param start integer
---@param length integer
---@param options? table or by name: dim, start, length
---@return amp.Tensor
function amp.narrow(input, dim, start, length, options) end

---Element-wise inequality.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.ne(input, other) end

----input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.neg(input) end

----input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.neg_(input) end

---Negative of input at each row's label, input being log-probabilities.
---@param input amp.Tensor
---@param target amp.Tensor
---@param weight? amp.Tensor
---@param ignore_index? integer default -100
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: weight, ignore_index, reduction
---@return amp.Tensor
function amp.nll_loss(input, target, weight, ignore_index, reduction, options) end

---Indices (from 1) of non-zero elements, one a row.
---@param input amp.Tensor
---@return amp.Tensor
function amp.nonzero(input) end

---p-norm over dimensions.
---@param input amp.Tensor
---@param p? number default 2
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: p, dim, keepdim, dtype
---@return amp.Tensor
function amp.norm(input, p, dim, keepdim, dtype, options) end

---Fill with normal random values.
---@param input amp.Tensor
---@param mean? number default 0
---@param std? number default 1
---@param options? table or by name: mean, std
---@return amp.Tensor
function amp.normal_(input, mean, std, options) end

---input over its p-norm along a dimension, the norm being at least eps.
---@param input amp.Tensor
---@param p? number default 2
---@param dim? integer default 2
---@param eps? number default 1e-12
---@param options? table or by name: p, dim, eps
---@return amp.Tensor
function amp.normalize(input, p, dim, eps, options) end

---A last dimension that is 1 at each label (from 1), else 0.
---@param input amp.Tensor
---@param num_classes? integer default -1
---@param options? table or by name: num_classes
---@return amp.Tensor
function amp.one_hot(input, num_classes, options) end

---Every product of an element of one vector and one of the other.
---@param input amp.Tensor
---@param vec2 amp.Tensor
---@return amp.Tensor
function amp.outer(input, vec2) end

---Elements added before and after, a pair a dimension, the last dimension first; negative ones taken away.
---@param input amp.Tensor
---@param pad integer|integer[]
---@param mode? 'constant'|'reflect'|'replicate'|'circular' default 0
---@param value? number default 0
---@param options? table or by name: pad, mode, value
---@return amp.Tensor
function amp.pad(input, pad, mode, value, options) end

---p-norm of x1 - x2 + eps along the last dimension.
---@param x1 amp.Tensor
---@param x2 amp.Tensor
---@param p? number default 2
---@param eps? number default 1e-6
---@param keepdim? boolean default 0
---@param options? table or by name: p, eps, keepdim
---@return amp.Tensor
function amp.pairwise_distance(x1, x2, p, eps, keepdim, options) end

---p-norms of the differences of each two rows of a matrix.
---@param input amp.Tensor
---@param p? number default 2
---@param options? table or by name: p
---@return amp.Tensor
function amp.pdist(input, p, options) end

---Dimensions in another order.
---@param input amp.Tensor
---@param dims integer|integer[]
---@param options? table or by name: dims
---@return amp.Tensor
function amp.permute(input, dims, options) end

---Pseudo-inverse; singular values up to rcond times the largest count as 0.
---@param input amp.Tensor
---@param rcond? number
---@param options? table or by name: rcond
---@return amp.Tensor
function amp.pinverse(input, rcond, options) end

---C r^2 x H x W to C x H r x W r.
---@param input amp.Tensor
---@param upscale_factor integer
---@param options? table or by name: upscale_factor
---@return amp.Tensor
function amp.pixel_shuffle(input, upscale_factor, options) end

---C x H r x W r to C r^2 x H x W.
---@param input amp.Tensor
---@param downscale_factor integer
---@param options? table or by name: downscale_factor
---@return amp.Tensor
function amp.pixel_unshuffle(input, downscale_factor, options) end

---Poisson distributed counts whose rates are input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.poisson(input) end

---Negative log-likelihood of Poisson counts, input being the rate or its logarithm.
---@param input amp.Tensor
---@param target amp.Tensor
---@param log_input? boolean default 1
---@param full? boolean default 0
---@param eps? number default 1e-8
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: log_input, full, eps, reduction
---@return amp.Tensor
function amp.poisson_nll_loss(input, target, log_input, full, eps, reduction, options) end

---n-th derivative of digamma.
---@param input amp.Tensor
---@param n integer
---@param options? table or by name: n
---@return amp.Tensor
function amp.polygamma(input, n, options) end

---input itself.
---@param input amp.Tensor
---@return amp.Tensor
function amp.positive(input) end

---input to the power exponent.
---@param input amp.Tensor|number
---@param exponent amp.Tensor|number
---@return amp.Tensor
function amp.pow(input, exponent) end

---input to the power exponent.
---@param input amp.Tensor|number
---@param exponent amp.Tensor|number
---@return amp.Tensor
function amp.pow_(input, exponent) end

---leaky_relu with a learnt slope, one or one a channel (dimension 2).
---@param input amp.Tensor
---@param weight amp.Tensor
---@return amp.Tensor
function amp.prelu(input, weight) end

---Product over one dimension or all.
---@param input amp.Tensor
---@param dim? integer
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function amp.prod(input, dim, keepdim, dtype, options) end

---A copy of input with source at places in C order.
---@param input amp.Tensor
---@param index amp.Tensor
---@param source amp.Tensor
---@param accumulate? boolean default 0
---@param options? table or by name: accumulate
---@return amp.Tensor
function amp.put(input, index, source, accumulate, options) end

---A copy of input with source at places in C order.
---@param input amp.Tensor
---@param index amp.Tensor
---@param source amp.Tensor
---@param accumulate? boolean default 0
---@param options? table or by name: accumulate
---@return amp.Tensor
function amp.put_(input, index, source, accumulate, options) end

---Q with orthonormal columns and upper triangular R whose product is input; complete: Q is square.
---@param input amp.Tensor
---@param mode? 'reduced'|'complete' default 0
---@param options? table or by name: mode
---@return amp.Tensor, amp.Tensor
function amp.qr(input, mode, options) end

---Quantiles q (0 to 1); a vector of them gives a leading dimension.
---@param input amp.Tensor
---@param q amp.Tensor|number
---@param dim? integer
---@param keepdim? boolean default 0
---@param interpolation? 'linear'|'lower'|'higher'|'midpoint'|'nearest' default 0
---@param options? table or by name: dim, keepdim, interpolation
---@return amp.Tensor
function amp.quantile(input, q, dim, keepdim, interpolation, options) end

---number / input.
---@param input amp.Tensor
---@param number number
---@param options? table or by name: number
---@return amp.Tensor
function amp.rdiv(input, number, options) end

---1 / input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.reciprocal(input) end

---1 / input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.reciprocal_(input) end

---max(input, 0).
---@param input amp.Tensor
---@return amp.Tensor
function amp.relu(input) end

---max(input, 0).
---@param input amp.Tensor
---@return amp.Tensor
function amp.relu_(input) end

---Values limited to [0, 6].
---@param input amp.Tensor
---@return amp.Tensor
function amp.relu6(input) end

---Values limited to [0, 6].
---@param input amp.Tensor
---@return amp.Tensor
function amp.relu6_(input) end

---Slices of a dimension scaled down to a p-norm of at most maxnorm.
---@param input amp.Tensor
---@param p number
---@param dim integer
---@param maxnorm number
---@param options? table or by name: p, dim, maxnorm
---@return amp.Tensor
function amp.renorm(input, p, dim, maxnorm, options) end

---Slices of a dimension scaled down to a p-norm of at most maxnorm.
---@param input amp.Tensor
---@param p number
---@param dim integer
---@param maxnorm number
---@param options? table or by name: p, dim, maxnorm
---@return amp.Tensor
function amp.renorm_(input, p, dim, maxnorm, options) end

---The tensor tiled.
---@param input amp.Tensor
---@param repeats integer|integer[]
---@param options? table or by name: repeats
---@return amp.Tensor
amp['repeat'] = function(input, repeats, options) end

---Each element of a dimension repeated; repeats is a count or a vector of counts.
---@param input amp.Tensor
---@param repeats amp.Tensor|number
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function amp.repeat_interleave(input, repeats, dim, options) end

---As view, with a copy where strides need one.
---@param input amp.Tensor
---@param shape integer|integer[]
---@param options? table or by name: shape
---@return amp.Tensor
function amp.reshape(input, shape, options) end

---First n/2 + 1 elements of the fft of a real tensor, complex (last dimension real, imaginary).
---@param input amp.Tensor
---@param n? integer
---@param dim? integer default -1
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: n, dim, norm
---@return amp.Tensor
function amp.rfft(input, n, dim, norm, options) end

---fft2 of a real tensor, the last dimension's redundant half left out.
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function amp.rfft2(input, s, dim, norm, options) end

---fftn of a real tensor, the last dimension's redundant half left out.
---@param input amp.Tensor
---@param s? integer|integer[]
---@param dim? integer|integer[]
---@param norm? 'backward'|'ortho'|'forward' default 0
---@param options? table or by name: s, dim, norm
---@return amp.Tensor
function amp.rfftn(input, s, dim, norm, options) end

---input over its root mean square in the last dimensions, which have the given shape.
---@param input amp.Tensor
---@param shape integer|integer[]
---@param weight? amp.Tensor
---@param eps? number
---@param options? table or by name: shape, weight, eps
---@return amp.Tensor
function amp.rms_norm(input, shape, weight, eps, options) end

---Layers of simple recurrent nets over a sequence; gives the results and the last states.
---@param input amp.Tensor
---@param hx amp.Tensor
---@param weights amp.Tensor[]
---@param num_layers? integer default 1
---@param bias? boolean default 1
---@param batch_first? boolean default 0
---@param bidirectional? boolean default 0
---@param dropout? number default 0
---@param training? boolean default 0
---@param packed? boolean default 0
---@param mode? 'tanh'|'relu' default 0
---@param options? table or by name: num_layers, bias, batch_first, bidirectional, dropout, training, packed, mode
---@return amp.Tensor, amp.Tensor
function amp.rnn(input, hx, weights, num_layers, bias, batch_first, bidirectional, dropout, training, packed, mode, options) end

---One step of a simple recurrent net: relu of both projections.
---@param input amp.Tensor
---@param hx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor
function amp.rnn_relu_cell(input, hx, w_ih, w_hh, b_ih, b_hh, options) end

---One step of a simple recurrent net: tanh of both projections.
---@param input amp.Tensor
---@param hx amp.Tensor
---@param w_ih amp.Tensor
---@param w_hh amp.Tensor
---@param b_ih? amp.Tensor
---@param b_hh? amp.Tensor
---@param options? table or by name: b_ih, b_hh
---@return amp.Tensor
function amp.rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih, b_hh, options) end

---Elements moved along dimensions, around the end; without dims over all elements in order.
---@param input amp.Tensor
---@param shifts integer|integer[]
---@param dims? integer|integer[]
---@param options? table or by name: shifts, dims
---@return amp.Tensor
function amp.roll(input, shifts, dims, options) end

---Turned k quarters from the first towards the second of two dimensions (1 and 2 if none are given).
---@param input amp.Tensor
---@param k? integer default 1
---@param dims? integer|integer[]
---@param options? table or by name: k, dims
---@return amp.Tensor
function amp.rot90(input, k, dims, options) end

---Round to nearest, ties to even.
---@param input amp.Tensor
---@return amp.Tensor
function amp.round(input) end

---Round to nearest, ties to even.
---@param input amp.Tensor
---@return amp.Tensor
function amp.round_(input) end

---number to the power input.
---@param input amp.Tensor
---@param number number
---@param options? table or by name: number
---@return amp.Tensor
function amp.rpow(input, number, options) end

---1 / square root.
---@param input amp.Tensor
---@return amp.Tensor
function amp.rsqrt(input) end

---1 / square root.
---@param input amp.Tensor
---@return amp.Tensor
function amp.rsqrt_(input) end

---Attention of query over key and value; a mask is true where a key takes part, or is added to the scores (to leave out a whole row use false or -inf: where all values of a row are finite and beyond -1e5 its gradients are not exact).
---@param query amp.Tensor
---@param key amp.Tensor
---@param value amp.Tensor
---@param attn_mask? amp.Tensor
---@param dropout_p? number default 0
---@param is_causal? boolean default 0
---@param scale? number
---@param enable_gqa? boolean default 0
---@param options? table or by name: attn_mask, dropout_p, is_causal, scale, enable_gqa
---@return amp.Tensor
function amp.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, options) end

---A copy of input with src written at indices.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor|number
---@param options? table or by name: dim
---@return amp.Tensor
function amp.scatter(input, dim, index, src, options) end

---A copy of input with src written at indices.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor|number
---@param options? table or by name: dim
---@return amp.Tensor
function amp.scatter_(input, dim, index, src, options) end

---A copy of input with src added at indices.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function amp.scatter_add(input, dim, index, src, options) end

---A copy of input with src added at indices.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param options? table or by name: dim
---@return amp.Tensor
function amp.scatter_add_(input, dim, index, src, options) end

---A copy of input with src combined at indices.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param reduce 'sum'|'prod'|'mean'|'amax'|'amin'
---@param include_self? boolean default 1
---@param options? table or by name: dim, reduce, include_self
---@return amp.Tensor
function amp.scatter_reduce(input, dim, index, src, reduce, include_self, options) end

---A copy of input with src combined at indices.
---@param input amp.Tensor
---@param dim integer
---@param index amp.Tensor
---@param src amp.Tensor
---@param reduce 'sum'|'prod'|'mean'|'amax'|'amin'
---@param include_self? boolean default 1
---@param options? table or by name: dim, reduce, include_self
---@return amp.Tensor
function amp.scatter_reduce_(input, dim, index, src, reduce, include_self, options) end

---The index (from 1) in a sorted last dimension at which each value would be inserted.
---@param sorted_sequence amp.Tensor
---@param input amp.Tensor|number
---@param right? boolean default 0
---@param options? table or by name: right
---@return amp.Tensor
function amp.searchsorted(sorted_sequence, input, right, options) end

---One index of a dimension, which goes.
---@param input amp.Tensor
---@param dim integer
---@param index integer
---@param options? table or by name: dim, index
---@return amp.Tensor
function amp.select(input, dim, index, options) end

---elu with the constants that keep mean and variance.
---@param input amp.Tensor
---@return amp.Tensor
function amp.selu(input) end

---elu with the constants that keep mean and variance.
---@param input amp.Tensor
---@return amp.Tensor
function amp.selu_(input) end

---1 / (1 + exp(-input)).
---@param input amp.Tensor
---@return amp.Tensor
function amp.sigmoid(input) end

---1 / (1 + exp(-input)).
---@param input amp.Tensor
---@return amp.Tensor
function amp.sigmoid_(input) end

----1, 0 or 1; NaN stays.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sign(input) end

----1, 0 or 1; NaN stays.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sign_(input) end

---input * sigmoid(input).
---@param input amp.Tensor
---@return amp.Tensor
function amp.silu(input) end

---input * sigmoid(input).
---@param input amp.Tensor
---@return amp.Tensor
function amp.silu_(input) end

---Sine of radians.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sin(input) end

---Sine of radians.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sin_(input) end

---sin(pi input) / (pi input); 1 at 0.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sinc(input) end

---sin(pi input) / (pi input); 1 at 0.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sinc_(input) end

---Hyperbolic sine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sinh(input) end

---Hyperbolic sine.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sinh_(input) end

---Sign of the determinant, and the logarithm of its absolute value.
---@param input amp.Tensor
---@return amp.Tensor, amp.Tensor
function amp.slogdet(input) end

---Squared where input and target differ by less than beta, else absolute difference, averaged.
---@param input amp.Tensor
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param beta? number default 1
---@param options? table or by name: reduction, beta
---@return amp.Tensor
function amp.smooth_l1_loss(input, target, reduction, beta, options) end

---log(1 + exp(-target * input)), targets being 1 or -1.
---@param input amp.Tensor
---@param target amp.Tensor
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: reduction
---@return amp.Tensor
function amp.soft_margin_loss(input, target, reduction, options) end

---exp(input) over its sum along a dimension.
---@param input amp.Tensor
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function amp.softmax(input, dim, dtype, options) end

---softmax of -input.
---@param input amp.Tensor
---@param dim integer
---@param dtype? amp.dtype
---@param options? table or by name: dim, dtype
---@return amp.Tensor
function amp.softmin(input, dim, dtype, options) end

---log(1 + exp(beta * input)) / beta; input itself where beta * input exceeds threshold.
---@param input amp.Tensor
---@param beta? number default 1
---@param threshold? number default 20
---@param options? table or by name: beta, threshold
---@return amp.Tensor
function amp.softplus(input, beta, threshold, options) end

---input moved towards 0 by lambd; 0 where it would cross.
---@param input amp.Tensor
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function amp.softshrink(input, lambd, options) end

---input moved towards 0 by lambd; 0 where it would cross.
---@param input amp.Tensor
---@param lambd? number default 0.5
---@param options? table or by name: lambd
---@return amp.Tensor
function amp.softshrink_(input, lambd, options) end

---input / (1 + abs(input)).
---@param input amp.Tensor
---@return amp.Tensor
function amp.softsign(input) end

---input / (1 + abs(input)).
---@param input amp.Tensor
---@return amp.Tensor
function amp.softsign_(input) end

---X of A X = B (X A = B without left); B holds matrices, or vectors if it has A's shape without the last dimension.
---@param A amp.Tensor
---@param B amp.Tensor
---@param left? boolean default 1
---@param options? table or by name: left
---@return amp.Tensor
function amp.solve(A, B, left, options) end

---X of A X = B (X A = B without left), of A only the named triangle being read.
---@param A amp.Tensor
---@param B amp.Tensor
---@param upper boolean
---@param left? boolean default 1
---@param unitriangular? boolean default 0
---@param options? table or by name: upper, left, unitriangular
---@return amp.Tensor
function amp.solve_triangular(A, B, upper, left, unitriangular, options) end

---Values in order along a dimension, and where they stood.
---@param input amp.Tensor
---@param dim? integer default -1
---@param descending? boolean default 0
---@param stable? boolean default 0
---@param options? table or by name: dim, descending, stable
---@return amp.Tensor, amp.Tensor
function amp.sort(input, dim, descending, stable, options) end

---Square root.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sqrt(input) end

---Square root.
---@param input amp.Tensor
---@return amp.Tensor
function amp.sqrt_(input) end

---input * input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.square(input) end

---input * input.
---@param input amp.Tensor
---@return amp.Tensor
function amp.square_(input) end

---Dimensions of size 1 (or the given one, if it is) removed.
---@param input amp.Tensor
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function amp.squeeze(input, dim, options) end

---Tensors joined along a new dimension.
---@param tensors amp.Tensor[]
---@param dim? integer default 1
---@param options? table or by name: dim
---@return amp.Tensor
function amp.stack(tensors, dim, options) end

---Square root of var, of values whose squares overflow too.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param correction? number default 1
---@param keepdim? boolean default 0
---@param options? table or by name: dim, correction, keepdim
---@return amp.Tensor
function amp.std(input, dim, correction, keepdim, options) end

---input - alpha * other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.sub(input, other, alpha, options) end

---input - alpha * other.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@param alpha? number default 1
---@param options? table or by name: alpha
---@return amp.Tensor
function amp.sub_(input, other, alpha, options) end

---Sum over dimensions (all if none given); integers give int64.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: dim, keepdim, dtype
---@return amp.Tensor
function amp.sum(input, dim, keepdim, dtype, options) end

---U, S, V of input = U diag(S) V^T, S falling; some: only the columns that belong to S.
---@param input amp.Tensor
---@param some? boolean default 1
---@param options? table or by name: some
---@return amp.Tensor, amp.Tensor, amp.Tensor
function amp.svd(input, some, options) end

---Singular values, falling.
---@param input amp.Tensor
---@return amp.Tensor
function amp.svdvals(input) end

---batch_norm over the batches of all processes; in a single one batch_norm itself.
---@param input amp.Tensor
---@param running_mean? amp.Tensor
---@param running_var? amp.Tensor
---@param weight? amp.Tensor
---@param bias? amp.Tensor
---@param training? boolean default 0
---@param momentum? number default 0.1
---@param eps? number default 1e-5
---@param options? table or by name: running_mean, running_var, weight, bias, training, momentum, eps
---@return amp.Tensor
function amp.sync_batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, options) end

---A matrix transposed; vectors stay.
---@param input amp.Tensor
---@return amp.Tensor
function amp.t(input) end

---Elements by their places in C order.
---@param input amp.Tensor
---@param index amp.Tensor
---@return amp.Tensor
function amp.take(input, index) end

---As gather, with the other dimensions broadcast; without a dimension over all elements.
---@param input amp.Tensor
---@param indices amp.Tensor
---@param dim? integer
---@param options? table or by name: dim
---@return amp.Tensor
function amp.take_along_dim(input, indices, dim, options) end

---Tangent of radians.
---@param input amp.Tensor
---@return amp.Tensor
function amp.tan(input) end

---Tangent of radians.
---@param input amp.Tensor
---@return amp.Tensor
function amp.tan_(input) end

---Hyperbolic tangent.
---@param input amp.Tensor
---@return amp.Tensor
function amp.tanh(input) end

---Hyperbolic tangent.
---@param input amp.Tensor
---@return amp.Tensor
function amp.tanh_(input) end

---input - tanh(input).
---@param input amp.Tensor
---@return amp.Tensor
function amp.tanhshrink(input) end

---input - tanh(input).
---@param input amp.Tensor
---@return amp.Tensor
function amp.tanhshrink_(input) end

---Products summed over the last dims dimensions of input and the first of other, or over the listed ones.
---@param input amp.Tensor
---@param other amp.Tensor
---@param dims? integer default 2
---@param dims_input? integer|integer[]
---@param dims_other? integer|integer[]
---@param options? table or by name: dims, dims_input, dims_other
---@return amp.Tensor
function amp.tensordot(input, other, dims, dims_input, dims_other, options) end

---value where input <= threshold.
---@param input amp.Tensor
---@param threshold number
---@param value number
---@param options? table or by name: threshold, value
---@return amp.Tensor
function amp.threshold(input, threshold, value, options) end

---value where input <= threshold.
---@param input amp.Tensor
---@param threshold number
---@param value number
---@param options? table or by name: threshold, value
---@return amp.Tensor
function amp.threshold_(input, threshold, value, options) end

---The k largest (or smallest) values of a dimension, and their indices.
---@param input amp.Tensor
---@param k integer
---@param dim? integer default -1
---@param largest? boolean default 1
---@param sorted? boolean default 1
---@param options? table or by name: k, dim, largest, sorted
---@return amp.Tensor, amp.Tensor
function amp.topk(input, k, dim, largest, sorted, options) end

---Sum of a matrix's diagonal; integers give int64.
---@param input amp.Tensor
---@return amp.Tensor
function amp.trace(input) end

---Two dimensions swapped.
---@param input amp.Tensor
---@param dim0 integer
---@param dim1 integer
---@param options? table or by name: dim0, dim1
---@return amp.Tensor
function amp.transpose(input, dim0, dim1, options) end

---X of A X = b (of A^T X = b with transpose) for a triangular A, and A.
---@param b amp.Tensor
---@param A amp.Tensor
---@param upper? boolean default 1
---@param transpose? boolean default 0
---@param unitriangular? boolean default 0
---@param options? table or by name: upper, transpose, unitriangular
---@return amp.Tensor, amp.Tensor
function amp.triangular_solve(b, A, upper, transpose, unitriangular, options) end

---The lower triangle, zeros above.
---@param input amp.Tensor
---@param diagonal? integer default 0
---@param options? table or by name: diagonal
---@return amp.Tensor
function amp.tril(input, diagonal, options) end

---Row and column indices (from 1) of a lower triangle, one row each.
---@param row integer
---@param col integer
---@param offset? integer default 0
---@param dtype? amp.dtype
---@param device? string
---@param options? table or by name: row, col, offset, dtype, device
---@return amp.Tensor
function amp.tril_indices(row, col, offset, dtype, device, options) end

---max(0, margin + distance to positive - distance to negative) of each row.
---@param anchor amp.Tensor
---@param positive amp.Tensor
---@param negative amp.Tensor
---@param margin? number default 1
---@param p? number default 2
---@param eps? number default 1e-6
---@param swap? boolean default 0
---@param reduction? 'none'|'mean'|'sum' default 1
---@param options? table or by name: margin, p, eps, swap, reduction
---@return amp.Tensor
function amp.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction, options) end

---The upper triangle, zeros below.
---@param input amp.Tensor
---@param diagonal? integer default 0
---@param options? table or by name: diagonal
---@return amp.Tensor
function amp.triu(input, diagonal, options) end

---Row and column indices (from 1) of an upper triangle, one row each.
---@param row integer
---@param col integer
---@param offset? integer default 0
---@param dtype? amp.dtype
---@param device? string
---@param options? table or by name: row, col, offset, dtype, device
---@return amp.Tensor
function amp.triu_indices(row, col, offset, dtype, device, options) end

---Round toward zero.
---@param input amp.Tensor
---@return amp.Tensor
function amp.trunc(input) end

---Round toward zero.
---@param input amp.Tensor
---@return amp.Tensor
function amp.trunc_(input) end

---Windows of a dimension, as a new last one.
---@param input amp.Tensor
---@param dim integer
---@param size integer
---@param step integer
---@param options? table or by name: dim, size, step
---@return amp.Tensor
function amp.unfold(input, dim, size, step, options) end

---Fill with uniform random values in [from, to).
---@param input amp.Tensor
---@param from? number default 0
---@param to? number default 1
---@param options? table or by name: from, to
---@return amp.Tensor
function amp.uniform_(input, from, to, options) end

---The different values, sorted; also where each element's value went and how often each occurs, if asked for.
---@param input amp.Tensor
---@param sorted? boolean default 1
---@param return_inverse? boolean default 0
---@param return_counts? boolean default 0
---@param options? table or by name: sorted, return_inverse, return_counts
---@return amp.Tensor, amp.Tensor, amp.Tensor
function amp.unique(input, sorted, return_inverse, return_counts, options) end

---The elements that differ from the one before; also each element's place and the lengths of the runs, if asked for.
---@param input amp.Tensor
---@param return_inverse? boolean default 0
---@param return_counts? boolean default 0
---@param options? table or by name: return_inverse, return_counts
---@return amp.Tensor, amp.Tensor, amp.Tensor
function amp.unique_consecutive(input, return_inverse, return_counts, options) end

---A dimension of size 1 inserted at dim.
---@param input amp.Tensor
---@param dim integer
---@param options? table or by name: dim
---@return amp.Tensor
function amp.unsqueeze(input, dim, options) end

---Variance, sum of squares over n - correction.
---@param input amp.Tensor
---@param dim? integer|integer[]
---@param correction? number default 1
---@param keepdim? boolean default 0
---@param options? table or by name: dim, correction, keepdim
---@return amp.Tensor
function amp.var(input, dim, correction, keepdim, options) end

---Inner product of two vectors.
---@param input amp.Tensor
---@param other amp.Tensor
---@return amp.Tensor
function amp.vdot(input, other) end

---Inner products along a dimension.
---@param input amp.Tensor
---@param other amp.Tensor
---@param dim? integer default -1
---@param options? table or by name: dim
---@return amp.Tensor
function amp.vecdot(input, other, dim, options) end

---p-norm over dimensions, p being ord.
---@param input amp.Tensor
---@param ord? number default 2
---@param dim? integer|integer[]
---@param keepdim? boolean default 0
---@param dtype? amp.dtype
---@param options? table or by name: ord, dim, keepdim, dtype
---@return amp.Tensor
function amp.vector_norm(input, ord, dim, keepdim, dtype, options) end

---The same elements in another shape, without a copy; one size may be -1.
---@param input amp.Tensor
---@param shape integer|integer[]
---@param options? table or by name: shape
---@return amp.Tensor
function amp.view(input, shape, options) end

---Tensors joined along dimension 1, vectors as rows.
---@param tensors amp.Tensor[]
---@return amp.Tensor
function amp.vstack(tensors) end

---input where condition is true, else other.
---@param condition amp.Tensor
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.where(condition, input, other) end

---input * log(other); 0 where input is 0.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.xlogy(input, other) end

---input * log(other); 0 where input is 0.
---@param input amp.Tensor|number
---@param other amp.Tensor|number
---@return amp.Tensor
function amp.xlogy_(input, other) end

---Make a differentiable function.
---@param def table {forward = function(ctx, ...), backward = function(ctx, ...), name = string}
---@return any # Function to be called like a function
function amp.Function(def) end

---GradManager: tensors to differentiate in, recordings, backward into just these.
---    local gm = amp.GradManager():attach(net:parameters())
---    gm:record(function() gm:backward(loss_of(net(x), y)) end)
---Tensors are held weakly, in attach order; one that does not require grad is tracked while a
---recording lasts. backward ends its recording. A manager that records inside another's
---recording leaves gradients with history, so the outer one gives second derivatives; its backward ends that history.
---@class amp.GradManager.module
---@overload fun(...: any): amp.GradManager
amp.GradManager = {}

---Managers that record together and do not see each other's backward.
---@return table # with record, release, attached_tensors
function amp.GradManager.group(...) end

---Whether a value is a GradManager.
---@param v any
function amp.GradManager.is(v) end

---GradScaler: dynamic loss scaling in three gears.
---  automatic      scaler:backward(gm, loss); opt:step():clear_grad()
---  manual         gm:backward(loss, {dy = scaler:scale_tensor()}); scaler:unscale(gm:attached_tensors());
---                 scaler:update(); opt:step()
---  per optimizer  scaler:scale(loss):backward(); scaler:unscale_(opt); scaler:step(opt); scaler:update()
---Scale, growth tracker and what was found live in the library's device cells, and gradients
---carry their checks, so no step waits. What this file keeps is the protocol: which optimizer
---was unscaled or stepped since the last update.
---Make a scaler.
---o: {init_scale = 65536, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000 (0: static), min_scale, max_scale, hysteresis = 1, max_skipped, enabled = true, verbose = false}; a device before it or in it is checked and has no effect, as a scaler serves every device
---@class amp.GradScaler.module
---@overload fun(o?: {backoff_factor?: number, enabled?: boolean, growth_factor?: number, growth_interval?: number, hysteresis?: number, init_scale?: number, max_scale?: any, max_skipped?: any, min_scale?: any, verbose?: boolean}): amp.GradScaler
amp.GradScaler = {}

---Whether a value is a GradScaler.
---@param v any
function amp.GradScaler.is(v) end

---Logger: what a training run reports, in a folder: log.csv, and event files for TensorBoard.
---
---  local log = amp.Logger('runs/first')
---  for step = 1, n do
---    ...
---    log:scalars({['loss/train'] = loss, lr = opt.param_groups[1].lr}, step)
---  end
---  log:close()
---
---Scalars that are tensors are copied where they are and read together every few seconds, so no step waits for
---the log. A folder that holds a log already is gone on with. A process that dies leaves whole records, and of
---scalars lacks the last seconds; os.exit without close is such a death. One logger a folder at a time.
---Make a logger.
---folder: made if it is not there
---given: csv (true), tensorboard (true), interval (2 seconds that scalars wait at most for the next call)
---@class amp.Logger.module
---@overload fun(folder: string, given?: {csv?: boolean, interval?: any, tensorboard?: boolean}): amp.Logger
amp.Logger = {}

---The scalars of a run, as amp.plot.curves takes them.
---@param path string a folder of a logger, or its log.csv
---@return table # name -> {steps, values}, `time` among the names
function amp.Logger.read(path) end

---Every |t - u| <= atol + rtol * |u|? Waits for the device.
---@param t any
---@param u amp.Tensor
---@param rtol any
---@param atol any
---@param equal_nan any
---@return boolean # 
function amp.allclose(t, u, rtol, atol, equal_nan) end

---arange(stop) from 0, arange(start, stop), arange(start, stop, step); stop is not included
function amp.arange(...) end

---Autocast: regions, the plain switch, policies, wrappers for functions.
---    amp.autocast(function() ... end)
---    amp.autocast({dtype = 'bfloat16', enabled = use_amp}, fn, arg1, arg2)
---    step = amp.autocast.wrap(function(x, y) ... end, {dtype = 'float16'})
---What is cast is decided in the library by the op's class; a region only sets the state's
---fields, through amp.region, so it ends as it began whatever happens inside.
---Run a function in a region: its ops compute in a 16-bit dtype or in float32, each as its class says.
---options: before or right behind fn; fn is the first argument without them: dtype ('float16' or 'bfloat16' or 'float8'; not given: float16 on a GPU, bfloat16 on the processor). Of 'float8', in which linear layers multiply 8-bit floats and all else is a region of its base: base ('bfloat16', or 'float16'), recipe ('current', 'delayed' or 'block': what a scale is made of), history (16: steps that 'delayed' looks back), exclude (names of modules that stay in the base). For all: enabled (true; false: the region is as if there were no autocast), device (such as 'cuda': the only one that the region is for; not given: all), cache_enabled (true: casts of weights are kept till the weight changes), verbose (of the region around this one, else false; true: each cast is printed)
---@class amp.autocast.module
---@overload fun(fn: function, ...: any): any
---@overload fun(options: {base?: string, cache_enabled?: boolean, device?: string, dtype?: amp.dtype, enabled?: boolean, exclude?: any, history?: number, recipe?: string, verbose?: boolean}, fn: function, ...: any): any
amp.autocast = {}

---The number of the 16-bit dtype of a region on a device: of one of 8 bits its base.
---@param device any
function amp.autocast.base_dtype(device) end

---Forget the casts of weights, which are kept till the weight changes or goes, or memory is short.
function amp.autocast.clear_autocast_cache() end

---host_waits, casts, cached_casts since this Lua state began, plain numbers; float8_casts: of the casts, those to 8 bits
function amp.autocast.counters() end

---dtype that a region on a device computes in: of the region around this, else the default.
---@param device? string default: the default device
---@return string # 'float8' in a region of 8 bits, whatever its base
function amp.autocast.get_autocast_dtype(device) end

---@param device? string default: the default device
function amp.autocast.is_autocast_enabled(device) end

---amp.enabled
function amp.autocast.is_enabled() end

---Run fn(...) with autocast off: as amp.autocast({enabled = false}, fn, ...).
---@param fn any
function amp.autocast.off(fn, ...) end

---Autocast class of an op: 'lower', 'fp32', 'fp32_unless_dtype', 'promote', 'special', 'banned', 'passthrough'.
---@param op string amp's name, or one of PyTorch, Apex, MXNet or MegEngine; one that stands for several ops ('Convolution') gives the class that all of them have
function amp.autocast.policy(op) end

---The classes as built, of one op or of all.
---@param op any
function amp.autocast.reset_policy(op) end

---Back to the state that `snapshot` gave, outside of regions; casts kept since go.
---@param state any
function amp.autocast.restore(state) end

---amp.enabled = b
---@param on any
function amp.autocast.set_enabled(on) end

---Give an op another class, in the whole process.
---@param op string as in amp.policy; each op that the name stands for gets the class
---@param class string
function amp.autocast.set_policy(op, class) end

---Set the state outside of regions, for amp.init and amp.initialize.
---@param op any
---@param given any
function amp.autocast.set_program(op, given) end

---The autocast state as a value, for `with`.
function amp.autocast.snapshot() end

---Run fn(...) in the state that `snapshot` gave.
---@param state any
---@param fn any
function amp.autocast.with(state, fn, ...) end

---A function that runs fn in a region each time it is called.
---@param fn function
---@param options? table those of amp.autocast, {dtype, base = 'bfloat16', recipe = 'current', history = 16, exclude, enabled = true, device, cache_enabled = true, verbose}; in either order with fn
---@param more any after a device in front, as in ('cuda', fn, options): the last of the three
---@return function # 
function amp.autocast.wrap(fn, options, more) end

---Backward from several roots, into the leaves.
---@param list table|amp.Tensor roots
---@param o? table gradients of the roots, or {grad_tensors = list, retain_graph, create_graph, inputs = only these leaves}
function amp.backward(list, o) end

---nms within each group: boxes of different groups never suppress each other.
---@param boxes amp.Tensor K x 4
---@param scores amp.Tensor K
---@param idxs amp.Tensor K whole numbers: the box's group, such as its class
---@param iou_threshold number
---@return amp.Tensor # int64, places of those that stay, the best first
function amp.batched_nms(boxes, scores, idxs, iou_threshold) end

---1 with the probability that stands at each place, else 0.
---amp.bernoulli(probabilities); with a number p, that probability everywhere, in input's shape.
---@param input amp.Tensor probabilities, a float dtype
---@param p? number
---@return amp.Tensor # input's shape and dtype
function amp.bernoulli(input, p) end

---Views of all in the shape they broadcast to.
---@param ... any tensors, or a list of them
---@return table # list of tensors
function amp.broadcast_tensors(...) end

---A function that does what fn does: n calls are n steps, whatever the device. Inside, modules made of amp's own layers run
---as optimized graphs, as compiled functions do (amp.compile). On a CPU each call runs fn, so its arguments, results,
---errors and side effects are fn's own. On a GPU, after two calls for each new set of shapes, the
---step is captured and replayed: learning rates, data, loss scale and random numbers are as eager steps have them;
---prints, counters and schedulers inside fn do not repeat. Results are copies without history.
---@param fn function|table a step, or a table that can be called, such as a module
---@return function # step takes fn's arguments, returns fn's results
function amp.capture(fn) end

---Product of several matrices, multiplied in the order that takes the fewest operations.
---The first and the last may be vectors.
---@param first any
---@param ... any or a list of them
function amp.chain_matmul(first, ...) end

---fn(...), whose inner values backward computes again instead of keeping them.
---Tensors with a history that fn uses go in as arguments (also in tables); weights need not.
---@param fn function
---@param ... any its arguments; PyTorch's {use_reentrant, preserve_rng_state} among them, last, have no effect
---@return any # fn's results
function amp.checkpoint(fn, ...) end

---At most n views of equal size (the last may be smaller) along a dimension.
---@param t any
---@param n any
---@param dim any
function amp.chunk(t, n, dim) end

---Forget the casts of weights, which are kept till the weight changes or goes, or memory is short.
function amp.clear_autocast_cache() end

---Wall time in seconds, from an arbitrary start; never runs backward.
function amp.clock() end

---A function that runs as a graph: the first call for a set of shapes, dtypes, devices, modes and regions traces and optimizes, later
---calls run that graph. Values, gradients, dtypes, draws and errors are those of plain calls. What can't be a graph runs as it is,
---after one warning that says which line and why. A graph is made anew where modules' fields, upvalues or globals that the function
---sees hold something else than when it was traced.
---@param fn any
---@param given? table dynamic (false): one graph for sizes that differ
---@return function # 
function amp.compile(fn, given) end

---A module in mixed precision (MXNet's convert_hybrid_block). The module must be hybridized and have run once; it is left
---as it is.
---@param module any
---@param given? table target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_names, cast_optional_params, as amp.convert_model
---@return any # nn.Module with tensors of its own under the module's names
function amp.convert_hybrid_block(module, given) end

---A copy of a graph, or of a module's, in mixed precision (MXNet's convert_model).
---@param model any
---@param given? table example_inputs (for a module: a list), target_dtype (the device's), target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_names, cast_optional_params (false)
---@return amp.Graph # 
function amp.convert_model(model, given) end

---host_waits, casts, cached_casts since this Lua state began, plain numbers; float8_casts: of the casts, those to 8 bits
function amp.counters() end

---Connectionist temporal classification: negative log-likelihood of label sequences under all
---alignments. The derivative is that in log_probs as they are given; it has no second one.
---@param log_probs amp.Tensor T x N x C, or T x C of one sequence: logarithms of probabilities
---@param targets any N x S labels (what lies beyond a sequence's length is not read), or all labels behind one another; an integer tensor or a table. Labels count from 1 and are never the blank
---@param input_lengths any steps of each sequence, an integer tensor or a table
---@param target_lengths any labels of each sequence, likewise
---@return amp.Tensor # scalar, or N losses
function amp.ctc_loss(log_probs, targets, input_lengths, target_lengths, ...) end

amp.cuda = {}

---Marks in a GPU's streams.
---A new event: it belongs to the GPU it is first recorded on.
---@param options? {device?: string, enable_timing?: boolean}|string {enable_timing (false), device}; or a device
---@return amp.cuda.Event
function amp.cuda.Event(options) end

---Streams of a GPU: queues whose work is done in order, beside each other.
---
---A GPU has up to 16; the one that is in use without any of this is number 0. Memory needs no care: a tensor may be
---freed while another stream still works on it. Values do: who reads in one stream what another writes makes it wait
---(wait_stream, wait_event).
---A new stream of a GPU. There are 15 beside the default one; the sixteenth that is made is the first again.
---@param device? string default 'cuda'
---@return amp.cuda.Stream
function amp.cuda.Stream(device) end

---The stream that a GPU's work goes to.
---@param device? string default 'cuda'
---@return any # Stream
function amp.cuda.current_stream(device) end

---The stream that a GPU starts with.
---@param device? string default 'cuda'
---@return any # Stream
function amp.cuda.default_stream(device) end

---The GPUs' part of amp.use_deterministic: no candidates are timed, no sums depend on the order of threads.
---@param value? boolean nil only asks
---@return boolean # what it was
function amp.cuda.deterministic(value) end

---Number of GPUs.
function amp.cuda.device_count() end

---Give cached blocks back to the driver. Nothing to do without a GPU.
function amp.cuda.empty_cache() end

---What a GPU is.
---@param device? string default 'cuda'
---@return table # {name, total_memory (bytes), major, minor (compute capability), multi_processor_count}
function amp.cuda.get_device_properties(device) end

---Whether a GPU can be used.
function amp.cuda.is_available() end

---Most bytes of tensors that a GPU held at once.
---@param device? string default 'cuda'
function amp.cuda.max_memory_allocated(device) end

---Bytes on a GPU.
---@param device? string default 'cuda'
---@return table # {live (in tensors), cached, kept (of the cached ones, those of captured steps), peak, free, total (of the card), others (the driver's, libraries', other programs'), allocations, failures}
function amp.cuda.memory_stats(device) end

---Why there is no GPU, or what the plug-in says of itself.
---@return string # 
function amp.cuda.reason() end

---Count the most bytes anew from now on.
---@param device any
function amp.cuda.reset_max_memory_allocated(device) end

---Run fn(...) with what it gives the GPU going to a stream: stream:with(fn, ...).
---@param stream any
---@param fn function
---@return any # fn's results
function amp.cuda.stream(stream, fn, ...) end

---Wait until a GPU has done all it was given. Without a GPU nothing is to be waited for;
---one asked for by name has to be there.
---@param device? string default: the first
function amp.cuda.synchronize(device) end

---Whether products and convolutions of float32 may use TF32 (10 bits of precision, faster); false until it is set.
---@param value? boolean nil only asks
---@return boolean # what it was
function amp.cuda.tf32(value) end

---Version of a library the GPU's part uses, or why it is not there.
---@param name string 'cublas', 'cudnn', 'cusolver', 'cufft', 'nvrtc' (with what it has compiled) or 'nccl'
---@return string # 
function amp.cuda.version_of(name) end

---Wrap a Function's backward, whose forward is wrapped by custom_fwd.
---@param fn function
---@param given? table {device}, PyTorch's device_type: checked, without effect
function amp.custom_bwd(fn, given) end

---Wrap a Function's forward. With cast_inputs, inside a region float tensors come cast and
---both directions run with autocast off; without, backward runs in the forward's state.
---@param fn function
---@param given any
function amp.custom_fwd(fn, given) end

amp.data = {}

---One dataset behind the other: ConcatDataset{a, b}.
---@param list any
function amp.data.ConcatDataset(list) end

---DataLoader: a dataset as batches, shuffled, resumable.
---
---An epoch draws its order once, from amp's generator, when it begins (`iter`); batches are gathered as they are needed, `prefetch` of them ahead.
---The order, the place in it and the key of its random numbers are the loader's state, so a run that stopped
---in the middle of an epoch goes on with exactly the batches that were left. With `workers`, processes gather
---batches while the caller trains (data/workers.lua); the order of batches and their contents are the same.
---What a dataset or transform draws at random is a function of the epoch's key and of the place in the epoch (data/draws.lua).
---Make a loader.
---@param dataset table with size() and batch(indices) or get(i); or all in one table, {set, batch_size = 64}
---@param options? {batch_size?: number, device?: string, drop_last?: boolean, pin_memory?: boolean, prefetch?: number, sampler?: any, shuffle?: boolean, timeout?: number, transform?: any, workers?: number} batch_size (1), shuffle (false), drop_last (false: the last batch may be smaller), sampler (whose indices are the order of an epoch: data.DistributedSampler, a table with indices() or iter(), a list), workers (0: processes that gather batches; datasets of tensors and text, whose batches are cheap, are not given to any), prefetch (0: batches gathered ahead; with workers at least two for each), timeout (0: seconds that a worker's batch is waited for, then an error; 0 waits for ever), transform (function of a batch's tensors that gives those to hand out, run in the caller's process), pin_memory (false: batches lie in ordinary memory; pinned, a GPU copies them while the program goes on; without a GPU it has no effect), device (where batches are handed out, such as 'cuda': the next one is copied there while the step computes; a transform gets them there)
---@return amp.data.DataLoader
function amp.data.DataLoader(dataset, options) end

---DistributedSampler: each rank's share of a dataset, anew in each epoch.
---
---The order of all examples (shuffled by seed and epoch, the same on every rank) is padded with its own beginning to a
---multiple of the ranks, or cut with drop_last; rank r takes places r, r + n, r + 2n, ... That is PyTorch's rule.
---@param set table a dataset
---@param o? {drop_last?: boolean, rank?: any, seed?: number, shuffle?: boolean, world_size?: any} {shuffle = true, seed = 0, drop_last = false}; also rank and world_size, in place of amp.distributed's
---@return amp.data.DistributedSampler
function amp.data.DistributedSampler(set, o) end

---ImageFolder: a dataset of images, one folder a class.
---
---  local set = amp.data.ImageFolder('pets', {size = 64})     -- pets/cat/*.jpg, pets/dog/*.png, ...
---  print(set.classes[1], set:size())                         -- cat
---  for x, y in amp.data.DataLoader(set, {batch_size = 32, shuffle = true, workers = 2}):iter() do ... end
---
---Images are read when they are asked for (data/image.lua); folders in a class's folder belong to it.
---Make a dataset of images, each folder in `root` being a class.
---@param root string|table the folder; or options alone with the folder as `root`, as of the other sets: ImageFolder{root = 'pets'}
---@param given? {channels?: number, max_bytes?: any, reduced?: boolean, size?: any, skip_bad?: boolean, transform?: any} channels (3), size ({height, width} or one number: images are brought to it; needed for batches of images of unequal sizes), transform (function of an image that gives what is used instead), max_bytes (of an image, as of read_image), skip_bad (false: an image that cannot be read is an error; true: the next one takes its place, with its label and one warning), reduced (false: every pixel is decoded; true: a JPEG at least twice as large as `size`, or as a transform's first crop or Resize, wants it is decoded at a half, a quarter or an eighth of its sides, several times as quick; values differ a little)
---@return amp.data.ImageFolder
function amp.data.ImageFolder(root, given) end

---Examples of a dataset by their indices (a list or tensor, from 1), in that order.
---@param set any
---@param indices any
function amp.data.Subset(set, indices) end

---TensorDataset: examples along dimension 1 of one or several tensors.
---
---A dataset is any table with `size()`, the number of examples, and `get(i)`,
---example i (from 1). One that also has `batch(indices)` (an int64 vector) is
---asked for whole batches, which is what makes this class quick.
---Make a dataset.
---@return amp.data.TensorDataset
function amp.data.TensorDataset(...) end

---TextDataset: windows of a text, with what comes next.
---
---  local set = amp.data.TextDataset('book.txt', {level = 'char', length = 64})
---  for x, y in amp.data.DataLoader(set, {batch_size = 32, shuffle = true}):iter() do ... end  -- int64, 32 x 64 each
---  print(set.vocabulary:decode(x[1]))
---Make a dataset of windows of a text: example i is `length` tokens, and the same moved on by one, to be foretold.
---@param path string|table of a file, or {text = 'the text itself'}
---@param given? {length?: number, level?: string, max_bytes?: any, stride?: any, vocabulary?: any} level ('char'), length (64), stride (length: windows one behind the other), vocabulary (made of the text with min_count, max_size, specials), max_bytes (the longest text that is read; any length where it isn't given)
---@return amp.data.TextDataset
function amp.data.TextDataset(path, given) end

---Vocabulary: tokens as numbers from 1, and back.
---
---  local v = amp.data.Vocabulary(text, {level = 'word', specials = {'<pad>', '<unk>'}})
---  local numbers = v:encode 'to be or not'      -- int64
---  print(v:decode(numbers))
---
---Tokens are bytes ('byte'), characters of UTF-8 ('char'), or words ('word': letters and digits together, every other
---character by itself, white space between them dropped).
---Make a vocabulary of the tokens of a text: the more frequent ones first, equal ones by name.
---@param text string|table or list of tokens
---@param given? {level?: string, max_size?: any, min_count?: number, specials?: any} level ('char'; 'byte', 'word'), min_count (1), max_size (of all, specials counted), specials (tokens that come first; '<unk>' among them stands for all that are not in it)
---@return amp.data.Vocabulary
function amp.data.Vocabulary(text, given) end

---n indices, each drawn with a chance in proportion to its weight.
---@param weights table|amp.Tensor of the examples, not below 0
---@param n? number indices an epoch; default: as many as weights
---@param given? table replacement (true)
---@return table # a sampler with size(), indices() and iter(), anew in each epoch
function amp.data.WeightedRandomSampler(weights, n, given) end

---A batch of examples.
---@param list table of examples: tensors, numbers, or tables of them
---@return any # the same with one dimension more
function amp.data.collate(list) end

---Read a table.
---@param path string
---@param given? table target (name or number of the column that is to be guessed: text becomes labels from 1, numbers stay numbers), columns (list of the features' names; all others), header (true: the first line names the columns), separator (','), missing (a number for empty fields; without it they are errors)
---@return any # TensorDataset with columns, target, classes (of a target of text); its examples are x, or x, y
function amp.data.csv(path, given) end

---Read an idx file.
---@param path string plain or gzip
---@param given? table max_bytes (the most that the tensor may take; 100 times the file's size and at least 256 MiB where it isn't given)
---@return amp.Tensor # of the file's shape and type (uint8 int8 int16 int32 float32 float64), on the CPU
function amp.data.idx(path, given) end

---Read MNIST's files.
---@param dir string folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz
---@param given? table max_bytes, as of amp.data.idx
---@return table # {train =, test =}: datasets of images, float32 N x 1 x 28 x 28 from 0 to 1, and labels, int64 N from 1 to 10 (digit + 1)
function amp.data.mnist(dir, given) end

---Split a dataset at random into parts without an example in common.
---@param set table
---@param parts table lengths that add up to the set's size, or fractions that add up to 1
---@return any # a Subset for each
function amp.data.random_split(set, parts) end

---Read an image.
---@param path string
---@param given? table channels: 1 (gray), 3 (RGB) or 4 (with alpha, also of a PNG's transparent colour), as the file has them; max_bytes: the most that the pixels may take, 100 times the file's size and at least 256 MiB where it isn't given
---@return amp.Tensor # uint8, channels x height x width, on the CPU
function amp.data.read_image(path, given) end

---Write an image, whole or not at all.
---@param path string ending in .png, .jpg, .jpeg, .ppm or .pgm
---@param t amp.Tensor H x W or C x H x W: uint8, or floats from 0 to 1 (values outside are clipped)
---@param given? table quality (of a JPEG, from 1 to 100; 90)
function amp.data.write_image(path, t, given) end

---End what amp.initialize or amp.init set for the whole program.
function amp.deactivate() end

---Run fn(...) and raise at the first value that is Inf or NaN, in a result or in a gradient.
---The error names the op, the line of its forward call, the parameter if it is one's gradient,
---and the step (optimizer steps so far + 1); its field `anomaly` has the same as a table {pass,
---op, where, parameter, step, kind, overflow, scale}. Infinities that the program asks for (as
---an attribute or number, or -Inf masks passed on) are none. Each result is looked at, so this is slow.
---@param given any
---@param fn function
---@return any # fn's results
function amp.detect_anomaly(given, fn, ...) end

---Run fn(...) with autocast off.
---@param fn any
function amp.disable_casts(fn, ...) end

amp.distributed = {}

---All ranks' tensors, on every rank.
---@param t amp.Tensor
---@param o? table {group, async}
---@return table # a list of tensors in the order of ranks, or a work
function amp.distributed.all_gather(t, o) end

---Every rank's t becomes the sum (or another op) of all ranks'. bool: or (sum, max), and (product, min).
---@param t amp.Tensor changed in place
---@param o? table {op = 'sum' | 'mean' | 'max' | 'min' | 'product', group, async = false}
---@return any # t, or a work
function amp.distributed.all_reduce(t, o) end

---Tensor i of each rank's list goes to rank i; gives what came from the ranks.
---@param list table one tensor for each rank, all of one shape and dtype
---@param o? table {group, async}
---@return table # a list of tensors in the order of ranks, or a work
function amp.distributed.all_to_all(list, o) end

---All ranks come here before any goes on.
---@param o? table {group, async}
function amp.distributed.barrier(o) end

---Every rank's t becomes that of one rank.
---@param t amp.Tensor changed in place
---@param o? table {from = 1, group, async}
---@return any # t, or a work
function amp.distributed.broadcast(t, o) end

---A value of plain data (nil, booleans, numbers, strings, tables of these) of one rank, on every rank.
---@param value any at rank `from`; what the others give is plain data as well, or nil
---@param o? table {from = 1, group}
---@return any # the value; a copy, on the others
function amp.distributed.broadcast_object(value, o) end

---Leave the other processes, which come here as well; a second time nothing happens. The end of a program does it by
---itself.
function amp.distributed.finalize() end

---All ranks' tensors, on rank `to`.
---@param t amp.Tensor
---@param o? table {to = 1, group, async}
---@return table # a list of tensors at rank `to`, nil elsewhere; or a work
function amp.distributed.gather(t, o) end

---Join the other processes. Calling it again changes nothing. With NCCL 'cuda' means this rank's card from now on.
---@param o? table {backend = 'auto' | 'nccl' | 'mpi', timeout = 300}: seconds that a call waits for the other ranks
function amp.distributed.init(o) end

---Whether init was called, and finalize was not.
function amp.distributed.is_initialized() end

---Whether this is rank 1, which prints and writes.
function amp.distributed.is_main() end

---This process's rank among those of its machine, from 1.
function amp.distributed.local_rank() end

---A metric of amp.metric counts what all ranks have counted. All ranks call it, once they have made their last update.
---@param metric any with state() and merge(state), or a sum and a count
---@return any # metric
function amp.distributed.merge_metric(metric) end

---Some of the ranks. All ranks call it, with the same list; those in it use what it gives, as option `group`.
---@param ranks table a list of ranks, from 1
---@return table # group; fields ranks, and rank: this process's place in it, nil where it is none of it
function amp.distributed.new_group(ranks) end

---This process's rank, from 1.
function amp.distributed.rank() end

---Get a tensor of t's shape and dtype from a rank, which calls send.
---@param t amp.Tensor changed in place
---@param o table {from, group, async}
---@return any # t, or a work
function amp.distributed.recv(t, o) end

---Rank `to` gets the sum (or another op) of all ranks' t in its own; the others' stay.
---@param t amp.Tensor changed in place at rank `to`
---@param o? table {to = 1, op = 'sum', group, async}
---@return any # t, or a work
function amp.distributed.reduce(t, o) end

---The sum (or another op) of all ranks' t, of which each rank gets its part along dimension 1.
---@param t amp.Tensor of n * k rows, n ranks
---@param o? table {op = 'sum', group, async}
---@return amp.Tensor # k rows, or a work
function amp.distributed.reduce_scatter(t, o) end

---Each rank's t becomes its tensor of the list that rank `from` gives.
---@param t amp.Tensor changed in place
---@param list? table one tensor for each rank; at rank `from`
---@param o? table {from = 1, group, async}
---@return any # t, or a work
function amp.distributed.scatter(t, list, o) end

---Send a tensor to a rank, which calls recv.
---@param t amp.Tensor
---@param o table {to, group, async}
---@return any # t, or a work
function amp.distributed.send(t, o) end

---How many ranks there are.
function amp.distributed.world_size() end

---Run fn a few times and report what to change. The first of several calls is a warm-up. Of a graph it tells what amp.summary does, and
---runs nothing; graphs that fn uses (amp.compile, hybridize) are looked at as well.
---@param fn function|amp.Graph one training step; gets the number of the call
---@param given any
---@return table # findings (list of {kind, text, advice, where}), dims, waits, underflow ({name, zero, subnormal, zero_scaled, subnormal_scaled}: shares), casts, cached_casts, cast_bytes, host_waits (a step), bound ('host', 'kernels' or 'gpu'), float8 (a list of what layers cast to 8 bits: {name, input, weight, gradient = {elements, saturated, zero}, pays}), kernels, calls, lua (shares of the time), time (seconds a step), graphs ({name, report} or {name, why}); its tostring is the text
function amp.doctor(fn, given) end

---Sum of products in Einstein's notation.
---A letter names a dimension; a letter in several operands (or twice in one: a diagonal) runs
---through them together; what the output lacks is summed over. `...` stands for any number of
---dimensions, which broadcast. Without `->` the output has the letters that stand once, sorted.
---Pairs of operands are multiplied in the order that is cheapest.
---@param equation string
---@param ... any up to 8 operands, or a list of them
---@return amp.Tensor # 
function amp.einsum(equation, ...) end

---empty(2, 3): elements are whatever the memory holds
function amp.empty(...) end

---As the function without _like, with shape, dtype and device of t, as far as {dtype, device} do not say otherwise, and in the
---layout of t where that is channels-last and no {memory_format} is given.
---@param t any
---@param o any
function amp.empty_like(t, o) end

---Run fn(...) recording, also inside no_grad.
---@param fn any
function amp.enable_grad(fn, ...) end

---Same shape and values? Waits for the device.
---@param t any
---@param u any
---@return boolean # 
function amp.equal(t, u) end

---What an error is to those who catch it: 'object' (the default) or 'string', for hosts that take
---an error's text with lua_tostring, which gives nothing for an object.
---@param kind? string nil: only ask
---@return string # the kind in force before
function amp.errors(kind) end

---eye(n), eye(n, m)
---@param n any
---@param m any
---@param o any
function amp.eye(n, m, o) end

---The histories of a network's layers, as plain data; layers that have none are not in it. Waits for the device.
---@param net any
---@return table # name of the weight -> {input = {numbers}, gradient = {numbers}}, the latest step first
function amp.float8_state(net) end

---fn in float32: half inputs are cast up, and autocast is off inside.
---@param fn function
function amp.float_function(fn) end

---A tensor over foreign memory; nothing is copied. A cdata array is kept alive by it; what a
---pointer points at must outlive it.
---@param pointer any
---@param shape table
---@param dtype? string default: that of the elements, or the default dtype
function amp.from_ptr(pointer, shape, dtype) end

---The tensor behind a handle of C's; nothing is copied, and the handle stays C's to release.
---@param pointer any address of an `amp_ref` (`lua_pushlightuserdata(L, &ref)`, or an `amp_ref *`)
---@return amp.Tensor # another handle of the same tensor
function amp.from_ref(pointer) end

---A tensor of the bytes of a Lua string (copied), as files hold them.
---@param bytes string
---@param shape table
---@param dtype string
function amp.from_string(bytes, shape, dtype) end

---A tensor of the numbers in a text: a JSON list, nested in any way, or numbers with commas or blanks between them. Nothing
---of it becomes a Lua value, so this is the quick way from a request's body to a model.
---@param text string
---@param shape table exactly as many numbers are expected as it takes
---@param dtype? string default: the default dtype
---@return amp.Tensor # on the CPU
function amp.from_text(text, shape, dtype) end

---full({2, 3}, 7, {...}), full(2, 7) for a vector
---@param shape any
---@param value any
---@param o any
function amp.full(shape, value, o) end

---full_like(t, 7, {...}): the value everywhere, shape and dtype of t
---@param t any
---@param value any
---@param o any
function amp.full_like(t, value, o) end

---dtype that a region on a device computes in: of the region around this, else the default.
---@param device? string default: the default device
---@return string # 'float8' in a region of 8 bits, whatever its base
function amp.get_autocast_dtype(device) end

---Device of new tensors.
function amp.get_default_device() end

---dtype of new tensors.
function amp.get_default_dtype() end

---Threads that kernels may use.
function amp.get_num_threads() end

---Seed and position of the generator, as plain data for a checkpoint.
---@return table # {seed, offset}, numbers; and epochs, where loaders began any
function amp.get_rng_state() end

---Gradients of outputs in inputs, as a list; leaves keep their `grad`.
---@param outputs table|amp.Tensor
---@param inputs table|amp.Tensor
---@param o? table {grad_outputs, create_graph, retain_graph, allow_unused}
---@param more any
---@return table # one gradient per input (nil where unused and allowed)
function amp.grad(outputs, inputs, o, more) end

---Are fn's gradients those of central differences?
---@param fn function of the inputs, giving a tensor or several
---@param inputs table|amp.Tensor float64; those that require grad are checked
---@param options? table {eps = 1e-6, atol = 1e-5, rtol = 1e-3, raise = true}
---@return boolean # true; false (with raise = false) or an error that names the first place that differs
function amp.gradcheck(fn, inputs, options) end

---Are the second derivatives those of central differences?
---@param fn function
---@param inputs table|amp.Tensor
---@param options? table as of gradcheck
function amp.gradgradcheck(fn, inputs, options) end

amp.graph = {}

---A copy of a graph in mixed precision; amp.convert_model, which takes modules as well, says more.
---@param graph amp.Graph
---@param given? table target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_names, cast_optional_params
---@return amp.Graph # 
function amp.graph.convert(graph, given) end

---Whether a value is a graph.
---@param v any
---@return boolean # 
function amp.graph.is(v) end

---Read a graph from a file that g:save wrote; the same as amp.load_graph.
---@param path string
---@param given? table map_location ('cpu'): the device it comes to
---@return amp.Graph # 
function amp.graph.load(path, given) end

---Record what a module or a function does for these inputs. It runs once, and what the run changed is put back.
---@param fn any
---@param inputs table a list of its arguments: tensors, tables of tensors, plain values (which the graph takes for fixed)
---@param given? table names (of the inputs, a list; by default those of the parameters), dynamic: sizes that are free at run time, as {1} (that dimension of every input) or {x = {1, 3}}
---@return amp.Graph # 
function amp.graph.trace(fn, inputs, given) end

---fn with its float tensors cast to the region's low dtype; outside a region fn itself.
---@param fn function
function amp.half_function(fn) end

---Turn autocast on for the whole program; what amp.init or amp.initialize set before is undone.
---@param given? table|string|boolean a target_dtype, or enabled, or {enabled = true, enable_caching = true, verbose = false, loss_scale = 'dynamic', allow_banned = false, target_dtype (default: each device's), target_precision_ops, fp32_ops (lists of op names, amp's or other systems', each of which takes the place of the default list of its kind), conditional_fp32_ops (list of {op, attribute, {values}}: float32 where the attribute has one of the values, else untouched)}
---@return any # a handle
function amp.init(given) end

---Give a trainer a loss scale of its own.
---@param trainer any an amp.optim.Trainer
---@return any # the trainer
function amp.init_trainer(trainer) end

---Make models and optimizers ready for an opt_level.
---@param models any a module or a list
---@param optimizers any an optimizer, a list, or nil (models alone may be followed by the options at once)
---@param given? table|string an opt_level, or {enabled = true, opt_level = 'O1', cast_model_type, keep_batchnorm_fp32, master_weights, loss_scale, cast_model_outputs, num_losses = 1, verbosity = 1, min_loss_scale, max_loss_scale = 2^24, keep_fp32}
---@return any # models and optimizers, in the shape they were given in
function amp.initialize(models, optimizers, given) end

amp.io = {}

amp.io.json = {}

---Read one JSON value.
---@param s string the text
---@return any # the value, or nil and what is wrong with the text
function amp.io.json.decode(s) end

---Write a value as JSON.
---@param v any string, number, boolean, json.null, array or table with string keys
---@return string # the text; raises on what JSON can't say
function amp.io.json.encode(v) end

---load(path, {map_location}): what amp.save wrote; no code is run. See amp/io/checkpoint.lua.
function amp.io.load(...) end

---Read an npy file.
---@param path string
---@param given? table max_bytes (the most that the tensor may take; 100 times the file's size and at least 256 MiB where it isn't given)
---@return amp.Tensor # on the CPU
function amp.io.load_npy(path, given) end

---Read an npz file.
---What in it is no array that amp has (text, complex numbers, Python objects, a file that is no npy) is left out: asking for it by its
---name is an error that says why.
---@param path string
---@param given? table max_bytes (the most that the tensors may take; 100 times the file's size and at least 256 MiB where it isn't given)
---@return table # name -> tensor, on the CPU
function amp.io.load_npz(path, given) end

---Read what torch.save wrote: tensors, numbers, strings, lists (from 1), dictionaries with their keys. None is nil.
---Nothing in the file is run; an object of any other class is an error that names it.
---@param path string
---@param given? table only: a list of names, of the outermost dictionary, to read; map_location: a device; max_bytes
---@return any # what was saved
function amp.io.load_pt(path, given) end

amp.io.onnx = {}

---Read an ONNX model as a graph. It takes and gives the file's numbers: indices from 0. Its float initializers are parameters that
---require grad, running statistics buffers.
---@param path string
---@param given? table shapes (sizes of inputs whose sizes are free or unknown in the file, by name), max_bytes (the most that a tensor may take)
---@return amp.Graph # 
function amp.io.onnx.load(path, given) end

---rename(state, rules): the tensors of a state dict under other names. See amp/io/rename.lua.
function amp.io.rename(...) end

amp.io.safetensors = {}

---Read a whole file.
---A tensor of a dtype that amp has not is left out: asking for it by its name is an error that says so.
---@param path string
---@param given? table max_bytes (the most that the tensors may take; 100 times the file's size and at least 256 MiB where it isn't given)
---@return table # name -> tensor, on the CPU
---@return table # metadata, strings by name
function amp.io.safetensors.load(path, given) end

---Open a file without reading its tensors.
---@param path string
---@param given? table max_bytes, the most that all tensors got may take
---@return any # an object with names(), get(name), metadata and close()
function amp.io.safetensors.open(path, given) end

---Write tensors to a file, which is replaced whole or not at all.
---@param path string
---@param tensors table name -> tensor
---@param metadata? table strings by name
function amp.io.safetensors.save(path, tensors, metadata) end

---save(path, value): tables, numbers, strings and tensors, written atomically with a checksum. See amp/io/checkpoint.lua.
function amp.io.save(...) end

---Write a tensor to a file, which is replaced whole or not at all.
---@param path string
---@param tensor amp.Tensor any dtype but bfloat16, which NumPy has not
function amp.io.save_npy(path, tensor) end

---Write tensors to a file, which is replaced whole or not at all.
---@param path string
---@param tensors table name -> tensor, of any dtype but bfloat16
function amp.io.save_npz(path, tensors) end

---Write a file that torch.load reads, also with weights_only; it is replaced whole or not at all.
---@param path string
---@param value any tensors, numbers, strings, booleans, and tables of them (lists count from 1 here, from 0 there)
function amp.io.save_pt(path, value) end

---@param device? string default: the default device
function amp.is_autocast_enabled(device) end

---Whether runs repeat bit by bit (amp.use_deterministic).
---@return boolean # 
function amp.is_deterministic() end

---Whether ops are recorded for backward now.
function amp.is_grad_enabled() end

---Whether a value is a tensor.
---@param v any
function amp.is_tensor(v) end

---The error object that amp raised last, with its fields; nil before the first.
---@return any # ?amp.Error
function amp.last_error() end

---linspace(first, last, steps): both ends included
---@param first any
---@param last any
---@param steps any
---@param o any
function amp.linspace(first, last, steps, o) end

---Ops that run in float32 for some values of an attribute: {name, attribute, {values}}, as amp.init was given them.
function amp.list_conditional_fp32_ops() end

---Ops that run in float32.
function amp.list_fp32_ops() end

---Ops that run in whatever dtype comes.
function amp.list_lp16_fp32_ops() end

---Ops whose float inputs go to the low dtype. Each op is in one of the five lists.
function amp.list_lp16_ops() end

---Ops whose inputs go to the widest float among them.
function amp.list_widest_type_cast() end

---load(path, {map_location}): what amp.save wrote; no code is run. See amp/io/checkpoint.lua.
function amp.load(...) end

---Set the histories of a network's layers. Those that the state does not name begin anew. Nothing is changed when anything
---is wrong.
---@param net any
---@param state table what float8_state gave
function amp.load_float8_state(net, state) end

---Read a graph from a file that g:save, net:export or save_checkpoint wrote. The Lua that made it is not needed.
---@param path string
---@param given? table map_location ('cpu'): the device it comes to
---@return amp.Graph # 
function amp.load_graph(path, given) end

---Go on from what state_dict gave.
---@param dict any
function amp.load_state_dict(dict) end

---logspace(first, last, steps, base): powers of base (10), the exponents evenly spaced, both ends included
---@param first any
---@param last any
---@param steps any
---@param base any
---@param o any
function amp.logspace(first, last, steps, base, o) end

---LSTM layers over a sequence; see nn.LSTM for a module.
---@param input amp.Tensor length x batch x size (batch x length x size with `batch_first`; length x size)
---@param state table|amp.Tensor {h, c}, layers * directions x batch x hidden each; or h, and c as the next argument
---@return amp.Tensor # results of the last layer, length x batch x directions * hidden
---@return amp.Tensor # last h
---@return amp.Tensor # last c
function amp.lstm(input, state, ...) end

---One step of an LSTM.
---@param input amp.Tensor batch x size, or size
---@param state table|amp.Tensor {h, c}, batch x hidden each; or h, and c as the next argument
---@return amp.Tensor # h
---@return amp.Tensor # c
function amp.lstm_cell(input, state, ...) end

---Opens the mailbox of a name: the same one in every Lua state of the process.
---@param name string up to 63 bytes
---@param given any
---@return any # Mailbox box:put(value, {copy}), box:take(seconds), box:clear(), box:count()
function amp.mailbox(name, given) end

---Start all random sequences of this Lua state anew.
---@param n number an integer
function amp.manual_seed(n) end

---What an optimizer steps: float32 masters where its model is in 16 bits.
---@param optimizer any
---@return table # list that is also an iterator
function amp.master_params(optimizer) end

---Memory of a device, in bytes.
---@param device? string default: the default device
---@return table # {live, cached, peak, allocations, failures, cycles}
function amp.memory(device) end

---Coordinate tensors of the grid that vectors span.
---amp.meshgrid(x, y, {indexing = 'ij'}): out[1][i][j] = x[i], out[2][i][j] = y[j]; 'xy' swaps the first two dimensions.
---@param ... any vectors (or scalars), or a list of them
---@return table # list of tensors (views)
function amp.meshgrid(...) end

amp.metric = {}

---Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
---up what several ranks saw.
---@param given? string|table a name for printing, or options by name
function amp.metric.AUC(given) end

---Make a metric: `update` takes a batch, `value` gives the mean since the last `reset`.
---@param given? string|table a name for printing, or options
function amp.metric.Accuracy(given, ...) end

---Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
---up what several ranks saw.
---@param given? string|table a name for printing, or options by name
function amp.metric.ConfusionMatrix(given) end

---Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
---up what several ranks saw.
---@param given? string|table a name for printing, or options by name
function amp.metric.F1(given) end

---Make a metric: `update` takes a batch, `value` gives the mean since the last `reset`.
---@param given? string|table a name for printing, or options
function amp.metric.Loss(given, ...) end

---Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
---up what several ranks saw.
---@param given? string|table a name for printing, or options by name
function amp.metric.Mean(given) end

---Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
---up what several ranks saw.
---@param given? string|table a name for printing, or options by name
function amp.metric.MeanAveragePrecision(given) end

---Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
---up what several ranks saw.
---@param given? string|table a name for printing, or options by name
function amp.metric.Perplexity(given) end

---Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
---up what several ranks saw.
---@param given? string|table a name for printing, or options by name
function amp.metric.TopK(given) end

---Product of several matrices, multiplied in the order that takes the fewest operations.
---The first and the last may be vectors.
---@param first any
---@param ... any or a list of them
function amp.multi_dot(first, ...) end

---Attention of several heads between projections, as F.multi_head_attention_forward.
---Masks: a bool is true where a key takes no part, a float is added to the scores.
---@param query amp.Tensor length x batch x size (or batch x length x size with `batch_first`, or length x size)
---@param key amp.Tensor keys' length x batch x size
---@param value amp.Tensor as key
---@param num_heads number
---@return amp.Tensor # query's shape
---@return amp.Tensor # weights, batch x length x keys (batch x heads x length x keys if not averaged), with need_weights
function amp.multi_head_attention(query, key, value, num_heads, ...) end

---Detections from probabilities and offsets, the best first.
---@param cls_prob amp.Tensor N x (classes + 1) x A, after softmax, background first
---@param loc_pred amp.Tensor N x 4A, or N x A x 4
---@param anchors amp.Tensor 1 x A x 4, corners 0 to 1
---@param given? table clip (true), threshold (0.01), background_id (0), nms_threshold (0.5; not in 0 to 1: no suppression), force_suppress (false: within a class only), variances ({0.1, 0.1, 0.2, 0.2}), nms_topk (-1: all)
---@return amp.Tensor # N x A x 6: class from 1 (-1: none, or suppressed), score, corners; -1 in what is left
function amp.multibox_detection(cls_prob, loc_pred, anchors, given) end

---What each anchor is trained towards.
---@param anchors amp.Tensor 1 x A x 4, corners 0 to 1
---@param labels amp.Tensor N x L x 5: class from 1, corners 0 to 1; padded with -1
---@param cls_preds amp.Tensor N x (classes + 1) x A, before softmax, background first
---@param given? table overlap_threshold (0.5), ignore_label (-1), negative_mining_ratio (-1: all that is not matched is background), negative_mining_thresh (0.5), minimum_negative_samples (0), variances ({0.1, 0.1, 0.2, 0.2})
---@return amp.Tensor # box, N x 4A: offsets to the matched box over the variances, else 0
---@return amp.Tensor # mask, N x 4A: 1 where an anchor is matched
---@return amp.Tensor # cls, N x A: 0 background, the class where matched, ignore_label elsewhere and in pictures without boxes
function amp.multibox_target(anchors, labels, cls_preds, given) end

---The boxes that no better one, which itself stays, overlaps by more than iou_threshold. Waits for the device: how
---many there are is not known before.
---@param boxes amp.Tensor K x 4
---@param scores amp.Tensor K
---@param iou_threshold number
---@return amp.Tensor # int64, their places (from 1), the best first
function amp.nms(boxes, scores, iou_threshold) end

amp.nn = {}

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param output_size any
---@return amp.nn.Module
function amp.nn.AdaptiveAvgPool1d(output_size) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param output_size any
---@return amp.nn.Module
function amp.nn.AdaptiveAvgPool2d(output_size) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param output_size any
---@return amp.nn.Module
function amp.nn.AdaptiveAvgPool3d(output_size) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param output_size any
---@param return_indices? boolean
---@return amp.nn.Module
function amp.nn.AdaptiveMaxPool1d(output_size, return_indices) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param output_size any
---@param return_indices? boolean
---@return amp.nn.Module
function amp.nn.AdaptiveMaxPool2d(output_size, return_indices) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param output_size any
---@param return_indices? boolean
---@return amp.nn.Module
function amp.nn.AdaptiveMaxPool3d(output_size, return_indices) end

---Dropout as modules: of elements, of whole channels, and of those that keep mean and variance.
---In evaluation each gives its input.
---Make a layer.
---@param p? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.AlphaDropout(p, inplace) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@param ceil_mode? boolean
---@param count_include_pad? boolean
---@return amp.nn.Module
function amp.nn.AvgPool1d(kernel_size, stride, padding, ceil_mode, count_include_pad) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@param ceil_mode? boolean
---@param count_include_pad? boolean
---@param divisor_override any
---@return amp.nn.Module
function amp.nn.AvgPool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@param ceil_mode? boolean
---@param count_include_pad? boolean
---@param divisor_override any
---@return amp.nn.Module
function amp.nn.AvgPool3d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table reduction, weight
---@return amp.nn.Module
function amp.nn.BCELoss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table pos_weight, reduction, weight
---@return amp.nn.Module
function amp.nn.BCEWithLogitsLoss(options) end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.BatchNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, bias = true})
---In training each channel is normalised by the batch's mean and variance, which
---also move the running ones by `momentum`; in evaluation by the running ones.
---With momentum = false the running ones are averages of all batches so far.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.BatchNorm1d
function amp.nn.BatchNorm1d(num_features, eps, momentum, affine, track_running_stats, bias) end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.BatchNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, bias = true})
---In training each channel is normalised by the batch's mean and variance, which
---also move the running ones by `momentum`; in evaluation by the running ones.
---With momentum = false the running ones are averages of all batches so far.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.BatchNorm2d
function amp.nn.BatchNorm2d(num_features, eps, momentum, affine, track_running_stats, bias) end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.BatchNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, bias = true})
---In training each channel is normalised by the batch's mean and variance, which
---also move the running ones by `momentum`; in evaluation by the running ones.
---With momentum = false the running ones are averages of all batches so far.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.BatchNorm3d
function amp.nn.BatchNorm3d(num_features, eps, momentum, affine, track_running_stats, bias) end

---nn.Bilinear: y[k] = x1^T W[k] x2 + b[k].
---Make a layer.
---@param in1_features any
---@param in2_features any
---@param out_features any
---@param bias? boolean
---@return amp.nn.Bilinear
function amp.nn.Bilinear(in1_features, in2_features, out_features, bias) end

---Activations as modules: each calls the function of its name.
---@param alpha? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.CELU(alpha, inplace) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table blank, reduction, zero_infinity
---@return amp.nn.Module
function amp.nn.CTCLoss(options) end

---Layers that change the resolution: Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, PixelShuffle,
---PixelUnshuffle, ChannelShuffle.
---@param groups any
---@return amp.nn.Module
function amp.nn.ChannelShuffle(groups) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.CircularPad1d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.CircularPad2d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.CircularPad3d(padding) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table ignore_index, reduction, weight
---@return amp.nn.Module
function amp.nn.ClassNLLCriterion(options) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@param value any
---@return amp.nn.Module
function amp.nn.ConstantPad1d(padding, value) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@param value any
---@return amp.nn.Module
function amp.nn.ConstantPad2d(padding, value) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@param value any
---@return amp.nn.Module
function amp.nn.ConstantPad3d(padding, value) end

---Convolution layers: Conv1d, Conv2d, Conv3d and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
---Data are N x C and 1, 2 or 3 dimensions more; or a single sample, without N.
---nn.Conv2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, dilation = 1, groups = 1,
---bias = true, padding_mode = 'zeros'}), by position or, from the fourth on, as options.
---kernel_size, stride, padding, dilation: a number or a list of one for each spatial dimension; padding also
---'same' (the output keeps the input's size) or 'valid' (none). padding_mode: zeros reflect replicate circular.
---@param in_channels any
---@param out_channels any
---@param kernel_size any
---@param stride? number
---@param padding? number
---@param dilation? number
---@param groups? number
---@param bias? boolean
---@param padding_mode? string
---@return amp.nn.Module
function amp.nn.Conv1d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode) end

---Convolution layers: Conv1d, Conv2d, Conv3d and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
---Data are N x C and 1, 2 or 3 dimensions more; or a single sample, without N.
---nn.Conv2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, dilation = 1, groups = 1,
---bias = true, padding_mode = 'zeros'}), by position or, from the fourth on, as options.
---kernel_size, stride, padding, dilation: a number or a list of one for each spatial dimension; padding also
---'same' (the output keeps the input's size) or 'valid' (none). padding_mode: zeros reflect replicate circular.
---@param in_channels any
---@param out_channels any
---@param kernel_size any
---@param stride? number
---@param padding? number
---@param dilation? number
---@param groups? number
---@param bias? boolean
---@param padding_mode? string
---@return amp.nn.Module
function amp.nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode) end

---Convolution layers: Conv1d, Conv2d, Conv3d and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
---Data are N x C and 1, 2 or 3 dimensions more; or a single sample, without N.
---nn.Conv2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, dilation = 1, groups = 1,
---bias = true, padding_mode = 'zeros'}), by position or, from the fourth on, as options.
---kernel_size, stride, padding, dilation: a number or a list of one for each spatial dimension; padding also
---'same' (the output keeps the input's size) or 'valid' (none). padding_mode: zeros reflect replicate circular.
---@param in_channels any
---@param out_channels any
---@param kernel_size any
---@param stride? number
---@param padding? number
---@param dilation? number
---@param groups? number
---@param bias? boolean
---@param padding_mode? string
---@return amp.nn.Module
function amp.nn.Conv3d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode) end

---Convolution layers: Conv1d, Conv2d, Conv3d and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
---Data are N x C and 1, 2 or 3 dimensions more; or a single sample, without N.
---nn.ConvTranspose2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, output_padding = 0,
---groups = 1, bias = true, dilation = 1}): the gradient of a convolution in its input, as a layer.
---@param in_channels any
---@param out_channels any
---@param kernel_size any
---@param stride? number
---@param padding? number
---@param output_padding? number
---@param groups? number
---@param bias? boolean
---@param dilation? number
---@param padding_mode? string
---@return amp.nn.Module
function amp.nn.ConvTranspose1d(in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode) end

---Convolution layers: Conv1d, Conv2d, Conv3d and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
---Data are N x C and 1, 2 or 3 dimensions more; or a single sample, without N.
---nn.ConvTranspose2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, output_padding = 0,
---groups = 1, bias = true, dilation = 1}): the gradient of a convolution in its input, as a layer.
---@param in_channels any
---@param out_channels any
---@param kernel_size any
---@param stride? number
---@param padding? number
---@param output_padding? number
---@param groups? number
---@param bias? boolean
---@param dilation? number
---@param padding_mode? string
---@return amp.nn.Module
function amp.nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode) end

---Convolution layers: Conv1d, Conv2d, Conv3d and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
---Data are N x C and 1, 2 or 3 dimensions more; or a single sample, without N.
---nn.ConvTranspose2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, output_padding = 0,
---groups = 1, bias = true, dilation = 1}): the gradient of a convolution in its input, as a layer.
---@param in_channels any
---@param out_channels any
---@param kernel_size any
---@param stride? number
---@param padding? number
---@param output_padding? number
---@param groups? number
---@param bias? boolean
---@param dilation? number
---@param padding_mode? string
---@return amp.nn.Module
function amp.nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table margin, reduction
---@return amp.nn.Module
function amp.nn.CosineEmbeddingLoss(options) end

---Distances of two tensors as modules: CosineSimilarity, PairwiseDistance.
---nn.CosineSimilarity(dim = 2, eps = 1e-8)
---@param dim? number
---@param eps? number
---@return amp.nn.Module
function amp.nn.CosineSimilarity(dim, eps) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table ignore_index, label_smoothing, reduction, weight
---@return amp.nn.Module
function amp.nn.CrossEntropyCriterion(options) end

amp.nn.CrossEntropyLoss = amp.nn.CrossEntropyCriterion

---Dropout as modules: of elements, of whole channels, and of those that keep mean and variance.
---In evaluation each gives its input.
---Make a layer.
---@param p? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Dropout(p, inplace) end

---Dropout as modules: of elements, of whole channels, and of those that keep mean and variance.
---In evaluation each gives its input.
---Make a layer.
---@param p? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Dropout1d(p, inplace) end

---Dropout as modules: of elements, of whole channels, and of those that keep mean and variance.
---In evaluation each gives its input.
---Make a layer.
---@param p? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Dropout2d(p, inplace) end

---Dropout as modules: of elements, of whole channels, and of those that keep mean and variance.
---In evaluation each gives its input.
---Make a layer.
---@param p? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Dropout3d(p, inplace) end

---Activations as modules: each calls the function of its name.
---@param alpha? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.ELU(alpha, inplace) end

---nn.Embedding and nn.EmbeddingBag: rows of a table by index, one by one or summed by bags.
---Make a table, drawn from a normal distribution.
---@param num_embeddings any
---@param embedding_dim any
---@param padding_idx any
---@param max_norm any
---@param norm_type? number
---@return amp.nn.Embedding
function amp.nn.Embedding(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type) end

---nn.Embedding and nn.EmbeddingBag: rows of a table by index, one by one or summed by bags.
---A table whose rows are summed, averaged or maximised by bags.
---@param num_embeddings any
---@param embedding_dim any
---@param max_norm any
---@param norm_type? number
---@param mode? string
---@param include_last_offset? boolean
---@param padding_idx any
---@return amp.nn.EmbeddingBag
function amp.nn.EmbeddingBag(num_embeddings, embedding_dim, max_norm, norm_type, mode, include_last_offset, padding_idx) end

---Dropout as modules: of elements, of whole channels, and of those that keep mean and variance.
---In evaluation each gives its input.
---Make a layer.
---@param p? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.FeatureAlphaDropout(p, inplace) end

---nn.Flatten(start_dim = 2, end_dim = -1): joins dimensions, by default all but the first.
---@param start_dim? number
---@param end_dim? number
---@return amp.nn.Module
function amp.nn.Flatten(start_dim, end_dim) end

---Windows of images as columns, and back: Unfold and Fold.
---@param output_size any
---@param kernel_size any
---@param dilation? number
---@param padding? number
---@param stride? number
---@return amp.nn.Module
function amp.nn.Fold(output_size, kernel_size, dilation, padding, stride) end

---Activations as modules: each calls the function of its name.
---@param approximate? string
---@return amp.nn.Module
function amp.nn.GELU(approximate) end

---Activations as modules: each calls the function of its name.
---@param dim? number
---@return amp.nn.Module
function amp.nn.GLU(dim) end

---Recurrent nets: nn.RNN, nn.LSTM, nn.GRU. Parameters have PyTorch's names, shapes and order
---of gates: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, layers counted from 0, a second
---direction ending in _reverse.
---A net of gated recurrent units; options as nn.RNN's without nonlinearity. Gates stand in the order r z n.
---@param input_size any
---@param hidden_size any
---@param num_layers? number
---@param bias? boolean
---@param batch_first? boolean
---@param dropout? number
---@param bidirectional? boolean
---@return amp.nn.GRU
function amp.nn.GRU(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional) end

---One step of recurrent nets: nn.RNNCell, nn.LSTMCell, nn.GRUCell, with parameters weight_ih,
---weight_hh, bias_ih, bias_hh as PyTorch's.
---A gated recurrent unit; options bias (true). Gates stand in the order r z n.
---@param input_size any
---@param hidden_size any
---@param bias? boolean
---@return amp.nn.GRUCell
function amp.nn.GRUCell(input_size, hidden_size, bias) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table eps, full, reduction
---@return amp.nn.Module
function amp.nn.GaussianNLLLoss(options) end

---Normalisation within a sample: LayerNorm, RMSNorm, GroupNorm, LocalResponseNorm.
---nn.GroupNorm(num_groups, num_channels, {eps = 1e-5, affine = true, bias = true})
---@param num_groups any
---@param num_channels any
---@param eps? number
---@param affine? boolean
---@param bias? boolean
---@return amp.nn.GroupNorm
function amp.nn.GroupNorm(num_groups, num_channels, eps, affine, bias) end

---Activations as modules: each calls the function of its name.
---@param lambd? number
---@return amp.nn.Module
function amp.nn.Hardshrink(lambd) end

---Activations as modules: each calls the function of its name.
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Hardsigmoid(inplace) end

---Activations as modules: each calls the function of its name.
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Hardswish(inplace) end

---Activations as modules: each calls the function of its name.
---@param min_val? number
---@param max_val? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Hardtanh(min_val, max_val, inplace) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table margin, reduction
---@return amp.nn.Module
function amp.nn.HingeEmbeddingLoss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table delta, reduction
---@return amp.nn.Module
function amp.nn.HuberLoss(options) end

---nn.Module: layers and networks as classes with registered parts.
---
---  local Net = nn.Module:extend('Net')
---  function Net:init(width) self.first = nn.Linear(784, width) end
---  function Net:forward(x) return self.first(x):relu() end
---  local net = Net(128)
---
---An instance keeps every field in one table behind it (its own raw keys begin
---with a dot, as no field's name does), so each assignment is seen: a module or a tensor that requires grad is registered
---under the field's name, in order. Containers (nn/container/) keep their parts in themselves, where
---ipairs, pairs and # look, and these raw keys in a metatable of their own: `inside` gives the table that has them.
---Tensors keep their identity through to(), half() and loading, so optimizers and other holders stay valid. How an error
---names the modules it passed is in nn/core/where.lua; walking the tree and state dicts are in nn/core/tree.lua.
---@return amp.nn.Identity
function amp.nn.Identity() end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.InstanceNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false})
---Each channel of each sample is normalised by its own mean and variance; with
---track_running_stats, in evaluation, by the running ones. A single sample may come without N, except
---to nn.InstanceNorm, which takes data of any rank.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.InstanceNorm
function amp.nn.InstanceNorm(num_features, eps, momentum, affine, track_running_stats, bias) end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.InstanceNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false})
---Each channel of each sample is normalised by its own mean and variance; with
---track_running_stats, in evaluation, by the running ones. A single sample may come without N, except
---to nn.InstanceNorm, which takes data of any rank.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.InstanceNorm1d
function amp.nn.InstanceNorm1d(num_features, eps, momentum, affine, track_running_stats, bias) end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.InstanceNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false})
---Each channel of each sample is normalised by its own mean and variance; with
---track_running_stats, in evaluation, by the running ones. A single sample may come without N, except
---to nn.InstanceNorm, which takes data of any rank.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.InstanceNorm2d
function amp.nn.InstanceNorm2d(num_features, eps, momentum, affine, track_running_stats, bias) end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.InstanceNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false})
---Each channel of each sample is normalised by its own mean and variance; with
---track_running_stats, in evaluation, by the running ones. A single sample may come without N, except
---to nn.InstanceNorm, which takes data of any rank.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.InstanceNorm3d
function amp.nn.InstanceNorm3d(num_features, eps, momentum, affine, track_running_stats, bias) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table log_target, reduction
---@return amp.nn.Module
function amp.nn.KLDivLoss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table reduction
---@return amp.nn.Module
function amp.nn.L1Loss(options) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param norm_type any
---@param kernel_size any
---@param stride any
---@param ceil_mode? boolean
---@return amp.nn.Module
function amp.nn.LPPool1d(norm_type, kernel_size, stride, ceil_mode) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param norm_type any
---@param kernel_size any
---@param stride any
---@param ceil_mode? boolean
---@return amp.nn.Module
function amp.nn.LPPool2d(norm_type, kernel_size, stride, ceil_mode) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param norm_type any
---@param kernel_size any
---@param stride any
---@param ceil_mode? boolean
---@return amp.nn.Module
function amp.nn.LPPool3d(norm_type, kernel_size, stride, ceil_mode) end

---Recurrent nets: nn.RNN, nn.LSTM, nn.GRU. Parameters have PyTorch's names, shapes and order
---of gates: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, layers counted from 0, a second
---direction ending in _reverse.
---A net of LSTMs; options as nn.GRU's, and proj_size (0: none), to which each h is projected. Gates stand in
---the order i f g o.
---@param input_size any
---@param hidden_size any
---@param num_layers? number
---@param bias? boolean
---@param batch_first? boolean
---@param dropout? number
---@param bidirectional? boolean
---@param proj_size? number
---@return amp.nn.LSTM
function amp.nn.LSTM(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size) end

---One step of recurrent nets: nn.RNNCell, nn.LSTMCell, nn.GRUCell, with parameters weight_ih,
---weight_hh, bias_ih, bias_hh as PyTorch's.
---A unit of long short-term memory; options bias (true). Gates stand in the order i f g o.
---@param input_size any
---@param hidden_size any
---@param bias? boolean
---@return amp.nn.LSTMCell
function amp.nn.LSTMCell(input_size, hidden_size, bias) end

---Normalisation within a sample: LayerNorm, RMSNorm, GroupNorm, LocalResponseNorm.
---nn.LayerNorm(shape, {eps = 1e-5, elementwise_affine = true, bias = true})
---@param shape number|table sizes of the last dimensions to normalise over
---@return amp.nn.LayerNorm
function amp.nn.LayerNorm(shape) end

---Activations as modules: each calls the function of its name.
---@param negative_slope? number
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.LeakyReLU(negative_slope, inplace) end

---nn.Linear: y = x W^T + b.
---Make a layer.
---@param in_features any
---@param out_features any
---@param bias? boolean
---@return amp.nn.Linear
function amp.nn.Linear(in_features, out_features, bias) end

---Normalisation within a sample: LayerNorm, RMSNorm, GroupNorm, LocalResponseNorm.
---nn.LocalResponseNorm(size, {alpha = 1e-4, beta = 0.75, k = 1})
---@param size any
---@param alpha? number
---@param beta? number
---@param k? number
---@return amp.nn.LocalResponseNorm
function amp.nn.LocalResponseNorm(size, alpha, beta, k) end

---Activations as modules: each calls the function of its name.
---@return amp.nn.Module
function amp.nn.LogSigmoid() end

---Activations as modules: each calls the function of its name.
---@param dim? number
---@return amp.nn.Module
function amp.nn.LogSoftmax(dim) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table reduction
---@return amp.nn.Module
function amp.nn.MSELoss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table margin, reduction
---@return amp.nn.Module
function amp.nn.MarginRankingLoss(options) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@param dilation? number
---@param return_indices? boolean
---@param ceil_mode? boolean
---@return amp.nn.Module
function amp.nn.MaxPool1d(kernel_size, stride, padding, dilation, return_indices, ceil_mode) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@param dilation? number
---@param return_indices? boolean
---@param ceil_mode? boolean
---@return amp.nn.Module
function amp.nn.MaxPool2d(kernel_size, stride, padding, dilation, return_indices, ceil_mode) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@param dilation? number
---@param return_indices? boolean
---@param ceil_mode? boolean
---@return amp.nn.Module
function amp.nn.MaxPool3d(kernel_size, stride, padding, dilation, return_indices, ceil_mode) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@return amp.nn.Module
function amp.nn.MaxUnpool1d(kernel_size, stride, padding) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@return amp.nn.Module
function amp.nn.MaxUnpool2d(kernel_size, stride, padding) end

---Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
---Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
---Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
---position or in a last table.
---@param kernel_size any
---@param stride any
---@param padding? number
---@return amp.nn.Module
function amp.nn.MaxUnpool3d(kernel_size, stride, padding) end

---Activations as modules: each calls the function of its name.
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Mish(inplace) end

---nn.Module: layers and networks as classes with registered parts.
---
---  local Net = nn.Module:extend('Net')
---  function Net:init(width) self.first = nn.Linear(784, width) end
---  function Net:forward(x) return self.first(x):relu() end
---  local net = Net(128)
---
---An instance keeps every field in one table behind it (its own raw keys begin
---with a dot, as no field's name does), so each assignment is seen: a module or a tensor that requires grad is registered
---under the field's name, in order. Containers (nn/container/) keep their parts in themselves, where
---ipairs, pairs and # look, and these raw keys in a metatable of their own: `inside` gives the table that has them.
---Tensors keep their identity through to(), half() and loading, so optimizers and other holders stay valid. How an error
---names the modules it passed is in nn/core/where.lua; walking the tree and state dicts are in nn/core/tree.lua.
---@return amp.nn.Module
function amp.nn.Module() end

---nn.ModuleDict: registered modules by name, without a forward of its own.
---The modules lie in the object itself, so `dict.name`, `dict.name = module`, `dict.name = nil` and `pairs(dict)` of Lua
---see them and nothing else; `dict:pairs()` goes through them in the order in which they were added.
---Make a dictionary.
---@param modules? table name -> nn.Module; added in the order of their names
---@return amp.nn.ModuleDict
function amp.nn.ModuleDict(modules) end

---What nn.Sequential and nn.ModuleList are made of: a container of modules by place.
---The modules lie in the object itself, at 1..n, where `ipairs`, `pairs`, `#`, `table.insert` and
---`table.remove` of Lua find them; all else, and the raw keys of a module, is kept by its metatable. So nothing
---that is done to the list can make it and the registration differ: the list is the registration.
---Make a list.
---@return amp.nn.ModuleList
function amp.nn.ModuleList(...) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table reduction
---@return amp.nn.Module
function amp.nn.MultiLabelMarginLoss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table reduction, weight
---@return amp.nn.Module
function amp.nn.MultiLabelSoftMarginLoss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table margin, p, reduction, weight
---@return amp.nn.Module
function amp.nn.MultiMarginLoss(options) end

---nn.MultiheadAttention: several heads attend side by side, between projections.
---Make a layer.
---@param embed_dim any
---@param num_heads any
---@param dropout? number
---@param bias? boolean
---@param add_bias_kv? boolean
---@param add_zero_attn? boolean
---@param kdim any
---@param vdim any
---@param batch_first? boolean
---@return amp.nn.MultiheadAttention
function amp.nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first) end

amp.nn.NLLLoss = amp.nn.ClassNLLCriterion

---nn.PReLU: leaky_relu with learnt slopes.
---nn.PReLU(num_parameters = 1, {init = 0.25}): one slope, or one a channel (dimension 2).
---Parameter: weight (num_parameters).
---@param num_parameters? number
---@param init? number
---@return amp.nn.Module
function amp.nn.PReLU(num_parameters, init) end

---Distances of two tensors as modules: CosineSimilarity, PairwiseDistance.
---nn.PairwiseDistance(p = 2, eps = 1e-6, keepdim = false): norms of x1 - x2 + eps along the last dimension
---@param p? number
---@param eps? number
---@param keepdim? boolean
---@return amp.nn.Module
function amp.nn.PairwiseDistance(p, eps, keepdim) end

---A tensor that requires grad and is registered by the module that it is assigned to.
---It shares t's memory and has no history. Any tensor that requires grad is registered; this is PyTorch's word for it.
---@param t amp.Tensor a float tensor
---@param requires_grad? boolean|table default true; or {requires_grad}
---@return amp.Tensor # 
function amp.nn.Parameter(t, requires_grad) end

---Layers that change the resolution: Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, PixelShuffle,
---PixelUnshuffle, ChannelShuffle.
---@param upscale_factor any
---@return amp.nn.Module
function amp.nn.PixelShuffle(upscale_factor) end

---Layers that change the resolution: Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, PixelShuffle,
---PixelUnshuffle, ChannelShuffle.
---@param downscale_factor any
---@return amp.nn.Module
function amp.nn.PixelUnshuffle(downscale_factor) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table eps, full, log_input, reduction
---@return amp.nn.Module
function amp.nn.PoissonNLLLoss(options) end

---Normalisation within a sample: LayerNorm, RMSNorm, GroupNorm, LocalResponseNorm.
---nn.RMSNorm(shape, {eps = the dtype's last place, elementwise_affine = true})
---@param shape number|table sizes of the last dimensions to normalise over
---@return amp.nn.RMSNorm
function amp.nn.RMSNorm(shape) end

---Recurrent nets: nn.RNN, nn.LSTM, nn.GRU. Parameters have PyTorch's names, shapes and order
---of gates: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, layers counted from 0, a second
---direction ending in _reverse.
---A simple recurrent net: h = tanh(W_ih x + b_ih + W_hh h + b_hh).
---@param input_size any
---@param hidden_size any
---@param num_layers? number
---@param nonlinearity? string
---@param bias? boolean
---@param batch_first? boolean
---@param dropout? number
---@param bidirectional? boolean
---@return amp.nn.RNN
function amp.nn.RNN(input_size, hidden_size, num_layers, nonlinearity, bias, batch_first, dropout, bidirectional) end

---One step of recurrent nets: nn.RNNCell, nn.LSTMCell, nn.GRUCell, with parameters weight_ih,
---weight_hh, bias_ih, bias_hh as PyTorch's.
---h' = tanh(W_ih x + b_ih + W_hh h + b_hh).
---@param input_size any
---@param hidden_size any
---@param bias? boolean
---@param nonlinearity? string
---@return amp.nn.RNNCell
function amp.nn.RNNCell(input_size, hidden_size, bias, nonlinearity) end

---Activations as modules: each calls the function of its name.
---@param lower? number
---@param upper? number
---@return amp.nn.Module
function amp.nn.RReLU(lower, upper) end

---Activations as modules: each calls the function of its name.
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.ReLU(inplace) end

---Activations as modules: each calls the function of its name.
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.ReLU6(inplace) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ReflectionPad1d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ReflectionPad2d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ReflectionPad3d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ReplicationPad1d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ReplicationPad2d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ReplicationPad3d(padding) end

---nn.RotaryEmbedding: positions as rotations of pairs of a head's elements (Su et al., 2021), in the half-rotated form of
---transformers: element i goes with element i + dim / 2.
---
---Scaling for longer texts than those of the training: 'linear' (angles over factor), 'dynamic' (the base grows with the length
---beyond max_positions), 'llama3' (low frequencies over factor, high ones kept, a ramp between).
---Make it.
---@param dim number elements of a head, even
---@param given? {base?: number, dim?: any, max_positions?: number, scaling?: any} max_positions (2048; a first guess, tables grow; where 'dynamic' scaling begins), base (10000; also `theta`), scaling (nil, or {type = 'linear' | 'dynamic' | 'llama3', factor, ...} with the names of config.json's rope_scaling)
---@return amp.nn.RotaryEmbedding
function amp.nn.RotaryEmbedding(dim, given) end

---Activations as modules: each calls the function of its name.
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.SELU(inplace) end

---What nn.Sequential and nn.ModuleList are made of: a container of modules by place.
---The modules lie in the object itself, at 1..n, where `ipairs`, `pairs`, `#`, `table.insert` and
---`table.remove` of Lua find them; all else, and the raw keys of a module, is kept by its metatable. So nothing
---that is done to the list can make it and the registration differ: the list is the registration.
---Make a list.
---@return amp.nn.Sequential
function amp.nn.Sequential(...) end

---Activations as modules: each calls the function of its name.
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.SiLU(inplace) end

---Activations as modules: each calls the function of its name.
---@return amp.nn.Module
function amp.nn.Sigmoid() end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table beta, reduction
---@return amp.nn.Module
function amp.nn.SmoothL1Loss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table reduction
---@return amp.nn.Module
function amp.nn.SoftMarginLoss(options) end

---Activations as modules: each calls the function of its name.
---@param dim? number
---@return amp.nn.Module
function amp.nn.Softmax(dim) end

---Activations as modules: each calls the function of its name.
---@param dim? number
---@return amp.nn.Module
function amp.nn.Softmin(dim) end

---Activations as modules: each calls the function of its name.
---@param beta? number
---@param threshold? number
---@return amp.nn.Module
function amp.nn.Softplus(beta, threshold) end

---Activations as modules: each calls the function of its name.
---@param lambd? number
---@return amp.nn.Module
function amp.nn.Softshrink(lambd) end

---Activations as modules: each calls the function of its name.
---@return amp.nn.Module
function amp.nn.Softsign() end

---nn.SwiGLU: the gated feed-forward network of Llama (Shazeer, 2020): down(silu(gate(x)) * up(x)).
---Make it; its layers are gate_proj, up_proj and down_proj.
---@param in_features any
---@param hidden_features any
---@param out_features any
---@param bias? boolean
---@return amp.nn.Module
function amp.nn.SwiGLU(in_features, hidden_features, out_features, bias) end

---Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
---Those over the last dimensions or groups of channels are in nn/layernorm.lua.
---nn.BatchNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, bias = true})
---In training each channel is normalised by the batch's mean and variance, which
---also move the running ones by `momentum`; in evaluation by the running ones.
---With momentum = false the running ones are averages of all batches so far.
---@param num_features any
---@param eps? number
---@param momentum? number
---@param affine? boolean
---@param track_running_stats? boolean
---@param bias? boolean
---@return amp.nn.SyncBatchNorm
function amp.nn.SyncBatchNorm(num_features, eps, momentum, affine, track_running_stats, bias) end

---Activations as modules: each calls the function of its name.
---@return amp.nn.Module
function amp.nn.Tanh() end

---Activations as modules: each calls the function of its name.
---@return amp.nn.Module
function amp.nn.Tanhshrink() end

---Activations as modules: each calls the function of its name.
---@param threshold any
---@param value any
---@param inplace? boolean
---@return amp.nn.Module
function amp.nn.Threshold(threshold, value, inplace) end

---Transformer layers and stacks of them, as in "Attention Is All You Need" and PyTorch.
---
---Data is length x batch x size, or batch x length x size with `batch_first`. Masks are those of
---nn.MultiheadAttention: a bool is true where a key takes no part, a float is added to the scores.
---An encoder and a decoder.
---@param d_model? number
---@param nhead? number
---@param num_encoder_layers? number
---@param num_decoder_layers? number
---@param dim_feedforward? number
---@param dropout? number
---@param activation? string
---@param custom_encoder any
---@param custom_decoder any
---@param layer_norm_eps? number
---@param batch_first? boolean
---@param norm_first? boolean
---@param bias? boolean
---@return amp.nn.Transformer
function amp.nn.Transformer(d_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, dropout, activation, custom_encoder, custom_decoder, layer_norm_eps, batch_first, norm_first, bias) end

---Transformer layers and stacks of them, as in "Attention Is All You Need" and PyTorch.
---
---Data is length x batch x size, or batch x length x size with `batch_first`. Masks are those of
---nn.MultiheadAttention: a bool is true where a key takes no part, a float is added to the scores.
---nn.TransformerDecoder(decoder_layer, num_layers, {norm})
---@param decoder_layer any
---@param num_layers any
---@param norm any
---@return amp.nn.TransformerDecoder
function amp.nn.TransformerDecoder(decoder_layer, num_layers, norm) end

---Transformer layers and stacks of them, as in "Attention Is All You Need" and PyTorch.
---
---Data is length x batch x size, or batch x length x size with `batch_first`. Masks are those of
---nn.MultiheadAttention: a bool is true where a key takes no part, a float is added to the scores.
---Self-attention, attention over the encoder's result, and a feed-forward network; arguments as
---nn.TransformerEncoderLayer.
---@param d_model any
---@param nhead any
---@param dim_feedforward? number
---@param dropout? number
---@param activation? string
---@param layer_norm_eps? number
---@param batch_first? boolean
---@param norm_first? boolean
---@param bias? boolean
---@return amp.nn.TransformerDecoderLayer
function amp.nn.TransformerDecoderLayer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias) end

---Transformer layers and stacks of them, as in "Attention Is All You Need" and PyTorch.
---
---Data is length x batch x size, or batch x length x size with `batch_first`. Masks are those of
---nn.MultiheadAttention: a bool is true where a key takes no part, a float is added to the scores.
---nn.TransformerEncoder(encoder_layer, num_layers, {norm}): num_layers copies of a layer, one after the other.
---@param encoder_layer any
---@param num_layers any
---@param norm any
---@return amp.nn.TransformerEncoder
function amp.nn.TransformerEncoder(encoder_layer, num_layers, norm) end

---Transformer layers and stacks of them, as in "Attention Is All You Need" and PyTorch.
---
---Data is length x batch x size, or batch x length x size with `batch_first`. Masks are those of
---nn.MultiheadAttention: a bool is true where a key takes no part, a float is added to the scores.
---Self-attention and a feed-forward network.
---@param d_model any
---@param nhead any
---@param dim_feedforward? number
---@param dropout? number
---@param activation? string
---@param layer_norm_eps? number
---@param batch_first? boolean
---@param norm_first? boolean
---@param bias? boolean
---@return amp.nn.TransformerEncoderLayer
function amp.nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table eps, margin, p, reduction, swap
---@return amp.nn.Module
function amp.nn.TripletMarginLoss(options) end

---Losses as modules: each calls the function of its name with its settings. Options go in
---one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
---Class labels count from 1.
---@param options? table distance_function, margin, reduction, swap
---@return amp.nn.Module
function amp.nn.TripletMarginWithDistanceLoss(options) end

---Windows of images as columns, and back: Unfold and Fold.
---@param kernel_size any
---@param dilation? number
---@param padding? number
---@param stride? number
---@return amp.nn.Module
function amp.nn.Unfold(kernel_size, dilation, padding, stride) end

---Layers that change the resolution: Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, PixelShuffle,
---PixelUnshuffle, ChannelShuffle.
---nn.Upsample{size | scale_factor, mode = 'nearest', align_corners, recompute_scale_factor}: as amp.interpolate.
---size and scale_factor are a number or a list of one for each spatial dimension.
---@param size any
---@param scale_factor any
---@param mode? string
---@param align_corners any
---@param recompute_scale_factor any
---@return amp.nn.Module
function amp.nn.Upsample(size, scale_factor, mode, align_corners, recompute_scale_factor) end

---Layers that change the resolution: Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, PixelShuffle,
---PixelUnshuffle, ChannelShuffle.
---@param size any
---@param scale_factor any
---@return amp.nn.Module
function amp.nn.UpsamplingBilinear2d(size, scale_factor) end

---Layers that change the resolution: Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, PixelShuffle,
---PixelUnshuffle, ChannelShuffle.
---@param size any
---@param scale_factor any
---@return amp.nn.Module
function amp.nn.UpsamplingNearest2d(size, scale_factor) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ZeroPad1d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ZeroPad2d(padding) end

---Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
---Data are N x C and 1, 2 or 3 dimensions more, or C and these.
---@param padding any
---@return amp.nn.Module
function amp.nn.ZeroPad3d(padding) end

amp.nn.init = {}

---Factor by which a non-linearity wants its input's deviation enlarged.
---@param name string linear, conv1d ... conv_transpose3d, sigmoid, tanh, relu, leaky_relu, selu
---@param slope? number of leaky_relu, default 0.01
function amp.nn.init.calculate_gain(name, slope) end

---The same value everywhere.
---@param t any
---@param value any
function amp.nn.init.constant_(t, value) end

---A convolution's weight (out x in x kernel of 1 to 3 dimensions) that passes channels on, as
---many as there are; with groups within each group.
---@param t any
function amp.nn.init.dirac_(t, ...) end

---A matrix's diagonal 1, everything else 0.
---@param t any
function amp.nn.init.eye_(t) end

---What Linear and the convolutions start with: weight by kaiming_uniform_ with a = sqrt(5),
---that is uniform within 1 / sqrt(fan_in), and the bias uniform within the same.
---@param weight any
---@param bias any
function amp.nn.init.fan_in_(weight, bias) end

---He's normal filling; arguments as kaiming_uniform_.
---@param t any
function amp.nn.init.kaiming_normal_(t, ...) end

---He's uniform filling; a (slope of leaky_relu, 0), mode ('fan_in'), nonlinearity ('leaky_relu').
---@param t any
function amp.nn.init.kaiming_uniform_(t, ...) end

---Normal, mean 0 and standard deviation 1 by default.
---@param t any
function amp.nn.init.normal_(t, ...) end

---Ones.
---@param t any
function amp.nn.init.ones_(t) end

---A matrix with orthonormal rows or columns (whichever are fewer), times gain; dimensions after
---the first count as one.
---@param t any
function amp.nn.init.orthogonal_(t, ...) end

---A matrix of normal values of deviation std, of each column's elements the part `sparsity` 0.
---@param t any
function amp.nn.init.sparse_(t, ...) end

---Normal, drawn again (in effect) where it falls outside [a, b].
---@param t any
function amp.nn.init.trunc_normal_(t, ...) end

---Uniform in [a, b), default [0, 1).
---@param t any
function amp.nn.init.uniform_(t, ...) end

---Glorot's normal filling; gain (1).
---@param t any
function amp.nn.init.xavier_normal_(t, ...) end

---Glorot's uniform filling; gain (1).
---@param t any
function amp.nn.init.xavier_uniform_(t, ...) end

---Zeros.
---@param t any
function amp.nn.init.zeros_(t) end

amp.nn.parallel = {}

---DistributedDataParallel: a network whose gradients are the mean over all ranks.
---    local net = nn.parallel.DistributedDataParallel(net)
---Parameters and buffers of rank 1 are everybody's at the start. Each backward leaves in every parameter the mean of all
---ranks' gradients, summed in buckets while backward goes on. In a world of one it is the network and nothing else.
---@param net amp.nn.Module
---@param o? {bucket_mb?: number, find_unused_parameters?: boolean, gradient_dtype?: string, group?: any, net?: any} {bucket_mb = 25, gradient_dtype = 'same' | 'float16' | 'bfloat16', find_unused_parameters = false, group}: what gradients are sent in; parameters that a rank does not use are found anyhow
---@return amp.nn.parallel.DistributedDataParallel
function amp.nn.parallel.DistributedDataParallel(net, o) end

amp.nn.utils = {}

---Scale gradients so that their total norm is at most max_norm, without waiting for it.
---The factor stays pending on 16-bit gradients; the step applies it.
---@param params any tensors, as a list
---@param max_norm number|table or every argument by name, {max_norm, norm_type, error_if_nonfinite}
---@param norm_type? number|table p of the norm (2; math.huge: largest), or {norm_type, error_if_nonfinite}
---@param more any
---@return amp.Tensor # total norm before clipping, a float32 scalar
function amp.nn.utils.clip_grad_norm_(params, max_norm, norm_type, more) end

---Limit every element of the gradients to [-clip_value, clip_value].
---@param params any
---@param clip_value any
function amp.nn.utils.clip_grad_value_(params, clip_value) end

---Scale gradients by max_norm over a total norm that is already known (of get_total_norm), at
---most by 1, without waiting for it.
---@param params any tensors, as a list
---@param max_norm number
---@param total_norm amp.Tensor|number
function amp.nn.utils.clip_grads_with_norm_(params, max_norm, total_norm) end

---Total norm of the gradients of tensors, or of tensors that have none and need none
---(gradients themselves); nothing is changed.
---@param params any tensors, as a list
---@param norm_type? number p of the norm (2; math.huge: largest)
---@return amp.Tensor # a float32 scalar
function amp.nn.utils.get_total_norm(params, norm_type) end

---lora(net, {rank, alpha, targets, dropout, trainable}) puts narrow matrices beside nn.Linear layers and freezes the rest;
---merge_lora(net) takes them into the weights; lora_parameters(net) is what is trained, lora_state_dict(net) the adapters alone.
---See amp/nn/blocks/lora.lua.
function amp.nn.utils.lora(...) end

---lora(net, {rank, alpha, targets, dropout, trainable}) puts narrow matrices beside nn.Linear layers and freezes the rest;
---merge_lora(net) takes them into the weights; lora_parameters(net) is what is trained, lora_state_dict(net) the adapters alone.
---See amp/nn/blocks/lora.lua.
function amp.nn.utils.lora_parameters(...) end

---lora(net, {rank, alpha, targets, dropout, trainable}) puts narrow matrices beside nn.Linear layers and freezes the rest;
---merge_lora(net) takes them into the weights; lora_parameters(net) is what is trained, lora_state_dict(net) the adapters alone.
---See amp/nn/blocks/lora.lua.
function amp.nn.utils.lora_state_dict(...) end

---lora(net, {rank, alpha, targets, dropout, trainable}) puts narrow matrices beside nn.Linear layers and freezes the rest;
---merge_lora(net) takes them into the weights; lora_parameters(net) is what is trained, lora_state_dict(net) the adapters alone.
---See amp/nn/blocks/lora.lua.
function amp.nn.utils.merge_lora(...) end

---All elements of the tensors, one after the other, as a vector with history.
---@param params any
---@return amp.Tensor # vector
function amp.nn.utils.parameters_to_vector(params) end

---weight_norm(module, {name, dim}), spectral_norm(module, {name, n_power_iterations, eps, dim}): the weight is computed anew for each
---forward pass; remove_weight_norm(module, name) and remove_spectral_norm make it an ordinary parameter again. See amp/nn/weight_norm.lua.
function amp.nn.utils.remove_spectral_norm(...) end

---weight_norm(module, {name, dim}), spectral_norm(module, {name, n_power_iterations, eps, dim}): the weight is computed anew for each
---forward pass; remove_weight_norm(module, name) and remove_spectral_norm make it an ordinary parameter again. See amp/nn/weight_norm.lua.
function amp.nn.utils.remove_weight_norm(...) end

amp.nn.utils.rnn = {}

---Make one of its parts (pack_padded_sequence and pack_sequence do).
---@param data amp.Tensor rows x ...
---@param batch_sizes amp.Tensor int64, never growing
---@param sorted_indices? amp.Tensor int64
---@param unsorted_indices? amp.Tensor int64; made of the other if it is nil
function amp.nn.utils.rnn.PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices) end

---Is v a PackedSequence?
---@param v any
function amp.nn.utils.rnn.is_packed(v) end

---Pack a padded batch.
---@return any # PackedSequence
function amp.nn.utils.rnn.pack_padded_sequence(...) end

---Pack sequences of different lengths.
---@return any # PackedSequence
function amp.nn.utils.rnn.pack_sequence(...) end

---Unpack into a padded batch, the sequences in their first order.
---@return amp.Tensor # steps x batch x ... (batch x steps x ... with `batch_first`)
---@return amp.Tensor # lengths, int64
function amp.nn.utils.rnn.pad_packed_sequence(...) end

---Sequences of different lengths as one tensor, filled up.
---@return amp.Tensor # longest x number x ... (number x longest x ... with `batch_first`)
function amp.nn.utils.rnn.pad_sequence(...) end

---The sequences in a PackedSequence: a list.
---@param sequence any
function amp.nn.utils.rnn.unpack_sequence(sequence) end

---The sequences of a padded batch, each in its own length: a list.
function amp.nn.utils.rnn.unpad_sequence(...) end

---weight_norm(module, {name, dim}), spectral_norm(module, {name, n_power_iterations, eps, dim}): the weight is computed anew for each
---forward pass; remove_weight_norm(module, name) and remove_spectral_norm make it an ordinary parameter again. See amp/nn/weight_norm.lua.
function amp.nn.utils.spectral_norm(...) end

---Copy a vector's elements into the tensors.
---@param vector any
---@param params any
function amp.nn.utils.vector_to_parameters(vector, params) end

---weight_norm(module, {name, dim}), spectral_norm(module, {name, n_power_iterations, eps, dim}): the weight is computed anew for each
---forward pass; remove_weight_norm(module, name) and remove_spectral_norm make it an ordinary parameter again. See amp/nn/weight_norm.lua.
function amp.nn.utils.weight_norm(...) end

---Run fn(...) without recording; gives its results.
---@param fn any
function amp.no_grad(fn, ...) end

---Normal values whose mean and standard deviation are numbers or tensors.
---amp.normal(mean, std) with a tensor or two (broadcast); amp.normal(0, 1, {2, 3}, options) with numbers.
---@param mean amp.Tensor|number
---@param std? amp.Tensor|number default 1, not negative
---@param size? table with two numbers
---@param options? table dtype, device, requires_grad
---@return amp.Tensor # 
function amp.normal(mean, std, size, options) end

---ones(2, 3), ones({2, 3}, {dtype, device, requires_grad})
function amp.ones(...) end

---As the function without _like, with shape, dtype and device of t, as far as {dtype, device} do not say otherwise, and in the
---layout of t where that is channels-last and no {memory_format} is given.
---@param t any
---@param o any
function amp.ones_like(t, o) end

amp.optim = {}

---Adadelta: gradients over the running root of their squares, times that of the steps made (Zeiler, 2012).
---amp.optim.Adadelta(params, {lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0, maximize = false, name}).
---@param params any
---@param options? {eps?: number, lr?: number, maximize?: boolean, name?: string, rho?: number, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.Adadelta(params, options) end

---Adafactor: second moments kept as a row and a column for each matrix, steps relative to the parameter's size (Shazeer and
---Stern, 2018). Of parameters with more dimensions the last two count.
---amp.optim.Adafactor(params, {lr = 1e-2, beta2_decay = -0.8, eps = {false, 1e-3}, d = 1, weight_decay = 0, maximize = false, name}).
---eps: what keeps the divisor from 0 (false: the dtype's smallest step at 1) and the least size of a parameter; d: how
---large an update may be.
---@param params any
---@param options? {beta2_decay?: number, d?: number, eps?: table, lr?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.Adafactor(params, options) end

---Adagrad: gradients over the root of the sum of all their squares so far.
---amp.optim.Adagrad(params, {lr = 1e-2, lr_decay = 0, weight_decay = 0,
---initial_accumulator_value = 0, eps = 1e-10, maximize = false, name}); Torch7's learningRate,
---learningRateDecay, weightDecay, epsilon work too.
---@param params any
---@param options? {eps?: number, initial_accumulator_value?: number, lr?: number, lr_decay?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.Adagrad(params, options) end

---Adam; weight decay is added to the gradient (AdamW decouples it).
---amp.optim.Adam(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0,
---amsgrad = false, maximize = false, name}); beta1, beta2 and Torch7's learningRate,
---weightDecay, epsilon work too.
---@param params any
---@param options? {amsgrad?: boolean, betas?: table, eps?: number, lr?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.Adam(params, options) end

---Adam with decoupled weight decay: parameters shrink by lr * weight_decay before each update.
---amp.optim.AdamW(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0.01,
---amsgrad = false, maximize = false, name}); beta1, beta2 and Torch7's learningRate,
---weightDecay, epsilon work too.
---@param params any
---@param options? {amsgrad?: boolean, betas?: table, eps?: number, lr?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.AdamW(params, options) end

---Adamax: Adam with the largest gradient so far, slowly forgotten, instead of the second moment (Kingma and Ba, 2015).
---amp.optim.Adamax(params, {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, maximize = false, name}).
---@param params any
---@param options? {betas?: table, eps?: number, lr?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.Adamax(params, options) end

---LAMB: AdamW's update of each parameter, scaled by the trust ratio: the parameter's norm over
---the update's. For large batches. A parameter that is all zeros, and with weight_decay = 0 every
---one (unless always_adapt is set), takes the plain step. Gradients are not clipped here: call
---nn.utils.clip_grad_norm_(params, 1) before the step to have the usual recipe.
---amp.optim.LAMB(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-6, weight_decay = 0.01,
---bias_correction = true, always_adapt = false, maximize = false, name}).
---@param params any
---@param options? {always_adapt?: boolean, betas?: table, bias_correction?: boolean, eps?: number, lr?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.LAMB(params, options) end

---LARC: layer-wise adaptive rate control around another optimizer (You et al., 2017).
---Each parameter's gradient, weight decay included, is multiplied by
---trust_coefficient * |p| / (|g| + weight_decay * |p| + eps); with clip by that over lr, at most 1,
---so that the rate is the smaller of the group's and the layer's. A parameter or a gradient that is
---all zeros is left to the optimizer as it is, without decay. Gradients are changed in place, as
---clipping does, without a wait; groups and state are the wrapped optimizer's, and so are schedulers.
---Put it around an optimizer.
---@param optimizer table one of amp.optim but LBFGS, or a table with step and param_groups
---@param options? {clip?: boolean, eps?: number, trust_coefficient?: number} {trust_coefficient = 0.02, clip = true, eps = 1e-8}; without clip the rate is the layer's alone, times the group's
---@return amp.optim.Optimizer
function amp.optim.LARC(optimizer, options) end

---L-BFGS: a quasi-Newton method with a limited history, each step several evaluations of a closure.
---amp.optim.LBFGS(params, {lr = 1, max_iter = 20, max_eval = max_iter * 5 / 4, tolerance_grad = 1e-7,
---tolerance_change = 1e-9, history_size = 100, line_search_fn = nil or 'strong_wolfe', name}).
---One group of parameters. It decides by values, so it waits for the device, and it can't stand under a
---GradScaler: run it in float32 (a bfloat16 region inside the closure is fine).
---@param params any
---@param options? {history_size?: number, line_search_fn?: any, lr?: number, max_eval?: any, max_iter?: number, name?: string, tolerance_change?: number, tolerance_grad?: number}
---@return amp.optim.Optimizer
function amp.optim.LBFGS(params, options) end

---Lion: steps of one size, by the sign of momentum and gradient mixed (Chen et al., 2023). Weight decay is decoupled.
---amp.optim.Lion(params, {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0, maximize = false, name}).
---@param params any
---@param options? {betas?: table, lr?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.Lion(params, options) end

---Muon: momentum whose matrix is made orthogonal by five Newton-Schulz steps in bfloat16 (Jordan et al., 2024). For
---matrices only; give biases, gains and embeddings to AdamW.
---amp.optim.Muon(params, {lr = 1e-3, weight_decay = 0.1, momentum = 0.95, nesterov = true,
---ns_coefficients = {3.4445, -4.775, 2.0315}, eps = 1e-7, ns_steps = 5, adjust_lr_fn = 'original' | 'match_rms_adamw', name}).
---adjust_lr_fn says what the rate of a rows x columns matrix is multiplied by: sqrt(max(1, rows / columns)), or
---0.2 sqrt(max(rows, columns)), or ('spectral_unclamped') sqrt(rows / columns).
---@param params any
---@param options? {adjust_lr_fn?: string, eps?: number, lr?: number, momentum?: number, name?: string, nesterov?: boolean, ns_coefficients?: table, ns_steps?: number, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.Muon(params, options) end

---NAdam: Adam with Nesterov's momentum (Dozat, 2016).
---amp.optim.NAdam(params, {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3,
---decoupled_weight_decay = false, maximize = false, name}).
---@param params any
---@param options? {betas?: table, decoupled_weight_decay?: boolean, eps?: number, lr?: number, maximize?: boolean, momentum_decay?: number, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.NAdam(params, options) end

---RAdam: Adam whose first steps, while the second moment's variance is large, are the momentum's (Liu et al., 2020).
---amp.optim.RAdam(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0,
---decoupled_weight_decay = false, maximize = false, name}).
---@param params any
---@param options? {betas?: table, decoupled_weight_decay?: boolean, eps?: number, lr?: number, maximize?: boolean, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.RAdam(params, options) end

---RMSprop: gradients over the root of a running mean of their squares, plain or centered
---(then over their running deviation), with momentum.
---amp.optim.RMSprop(params, {lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0,
---centered = false, maximize = false, name}); Torch7's learningRate, weightDecay, epsilon work too.
---@param params any
---@param options? {alpha?: number, centered?: boolean, eps?: number, lr?: number, maximize?: boolean, momentum?: number, name?: string, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.RMSprop(params, options) end

---Stochastic gradient descent, with momentum, Nesterov's form, weight decay.
---amp.optim.SGD(params, {lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0,
---nesterov = false, maximize = false, name}); Torch7's learningRate and weightDecay work too.
---@param params any
---@param options? {dampening?: number, lr?: number, maximize?: boolean, momentum?: number, name?: string, nesterov?: boolean, weight_decay?: number}
---@return amp.optim.Optimizer
function amp.optim.SGD(params, options) end

---Trainer: an optimizer by name whose step takes the size of the batch.
---A step multiplies gradients by 1/batch_size (in the update itself, without a pass of its own)
---and clears them afterwards, so that the next backward writes them anew. With
---amp.init_trainer it has a loss scale: step unscales, skips on overflow and updates the scale.
---Fields: optimizer, param_groups, learning_rate, loss_scale (1 without amp.init_trainer).
---A trainer.
---@param params any a list of tensors or of groups, a module, or tensors by name
---@param what string|table 'sgd', 'nag', 'adam', 'adamw', 'rmsprop', 'adagrad', 'lamb', 'nadam', 'radam', 'adadelta', 'adamax', 'lion', 'adafactor', 'muon'; or an optimizer
---@param given? {alpha?: any, always_adapt?: any, amsgrad?: any, betas?: any, bias_correction?: any, centered?: any, dampening?: any, eps?: any, initial_accumulator_value?: any, kvstore?: any, lr?: any, lr_decay?: any, maximize?: any, momentum?: any, multi_precision?: any, name?: string, nesterov?: any, rescale_grad?: number, update_on_kvstore?: any, weight_decay?: any} the optimizer's options, of {lr, momentum, dampening, nesterov, weight_decay, betas, eps, amsgrad, alpha, centered, lr_decay, initial_accumulator_value, bias_correction, always_adapt, maximize} those that it has; also {rescale_grad = 1, name, kvstore}: 'dist_sync' sums gradients over the ranks; and {update_on_kvstore, multi_precision}, which have no effect
---@param more? table kvstore options here do as well
---@return amp.optim.Optimizer
function amp.optim.Trainer(params, what, given, more) end

---ZeroRedundancyOptimizer: an optimizer whose state is spread over the ranks.
---    local opt = amp.optim.ZeroRedundancyOptimizer(net:parameters(), 'AdamW', {lr = 1e-3})
---All elements of all parameters in one row, cut into as many pieces as there are ranks (LAMB, whose step looks at whole
---parameters: whole ones, by size): each rank keeps the state of its piece, steps it, and sends the result to the others
---(Rajbhandari et al. 2020, stage 1). Gradients are whole on every rank, so clipping and loss scaling are what they were.
---Checkpoints hold the plain optimizer's state (consolidated_state_dict), which any number of ranks goes on from.
---@param params any
---@param options? table
---@return amp.optim.Optimizer
function amp.optim.ZeroRedundancyOptimizer(params, options) end

amp.optim.lr_scheduler = {}

---Schedules that multiply: MultiplicativeLR, and ChainedScheduler, which steps several at once.
---Called by amp.optim.lr_scheduler with its module table.
---@param opt any
---@param options? table
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.ChainedScheduler(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {factor?: number, total_iters?: number}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.ConstantLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {T_max?: any, eta_min?: number}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.CosineAnnealingLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {T_0?: any, T_mult?: number, eta_min?: number}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {num_cycles?: number, total_steps?: any, warmup_steps?: number}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.CosineWithWarmup(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {base_lr?: any, base_momentum?: number, cycle_momentum?: boolean, gamma?: number, max_lr?: any, max_momentum?: number, mode?: string, scale_fn?: any, scale_mode?: string, step_size_down?: any, step_size_up?: number}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.CyclicLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {gamma?: any}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.ExponentialLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {lr_lambda?: any}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.LambdaLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {end_factor?: number, start_factor?: number, total_iters?: number}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.LinearLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {gamma?: number, milestones?: any}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.MultiStepLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {lr_lambda?: any}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.MultiplicativeLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {anneal_strategy?: string, base_momentum?: number, cycle_momentum?: boolean, div_factor?: number, epochs?: any, final_div_factor?: number, max_lr?: any, max_momentum?: number, pct_start?: number, steps_per_epoch?: any, three_phase?: boolean, total_steps?: any}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.OneCycleLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {power?: number, total_iters?: number}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.PolynomialLR(opt, options) end

---ReduceLROnPlateau: smaller rates when a metric stops to improve.
---Called by amp.optim.lr_scheduler with its module table.
---@param opt any
---@param options? {cooldown?: number, eps?: number, factor?: number, min_lr?: number, mode?: string, patience?: number, threshold?: number, threshold_mode?: string}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.ReduceLROnPlateau(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {milestones?: any, schedulers?: any}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.SequentialLR(opt, options) end

---Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
---sets its first rate at once, and `sched:step()` goes to the next:
---  StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
---  ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
---  LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
---  OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
---    final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
---  LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
---  MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
---  ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
---  CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
---  CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
---  CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
---    scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
---  ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
---    threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
---Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
---Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
---one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
---under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
---Under a scaler hold the schedule back where the step was skipped:
---  scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
---  if not skipped then sched:step() end
---@param opt any
---@param options? {gamma?: number, step_size?: any}
---@return amp.optim.Schedule
function amp.optim.lr_scheduler.StepLR(opt, options) end

amp.optim.swa = {}

---Averages of weights: AveragedModel (stochastic weight averaging, Izmailov et al., 2018), EMA, update_bn.
---An average of a network's weights, in a copy of it.
---@param model any copied as it is; the first update copies its weights again
---@param given? {avg_fn?: any, copied?: any, model?: any, too?: any, updates?: any, use_buffers?: any} {avg_fn = function(average, parameter, n) end: gives the new average after n updates, use_buffers = false: buffers are averaged too, else copied}; nil avg_fn: the mean of all updates
---@return amp.optim.swa.AveragedModel
function amp.optim.swa.AveragedModel(model, given) end

---Averages of weights: AveragedModel (stochastic weight averaging, Izmailov et al., 2018), EMA, update_bn.
---An exponential moving average of a network's weights: average = decay * average + (1 - decay) * weight. The first update
---copies. EMA(net, {decay = 0.999}), or EMA{decay = 0.999}, which copies the network at its first update(net) and may be the
---avg_fn of an AveragedModel.
---@param model? any
---@param given? {decay?: number, use_buffers?: boolean} {decay = 0.999, use_buffers = false}
---@return amp.optim.swa.EMA
function amp.optim.swa.EMA(model, given) end

---Running statistics of a network's batch norms anew, as means over a loader's batches: after averaging weights.
---@param loader any
---@param model any left in the mode it was in
function amp.optim.swa.update_bn(loader, model) end

amp.parallel = {}

amp.parallel.DistributedDataParallel = amp.nn.parallel.DistributedDataParallel

---BatchNorm layers of a network become SyncBatchNorm; nn.SyncBatchNorm.convert is the same.
---@param net amp.nn.Module
---@return amp.nn.Module # net
function amp.parallel.convert_syncbn_model(net) end

amp.plot = {}

---A picture with boxes around what was found.
---@param image amp.Tensor H x W or C x H x W
---@param boxes amp.Tensor|table n x 4 corners in pixels
---@param labels? amp.Tensor|table from 1, or names; -1 is not drawn
---@param scores? amp.Tensor|table
---@param given any
function amp.plot.boxes(image, boxes, labels, scores, given) end

---A figure of several lines with a legend.
---@param lines table name -> y, or {x, y}; drawn in the order of the names
---@param given any
function amp.plot.curves(lines, given) end

---An empty figure, to add series to.
---@param given any
function amp.plot.figure(given) end

---A picture of a graph: boxes in layers, casts orange, what passes joined or keep in colours of their own.
---@param g amp.Graph
---@param given any
---@return any # a picture with save(path), png(), and show() and tostring, which are the text of print(g)
function amp.plot.graph(g, given) end

---A figure of a histogram: histogram(values, options).
function amp.plot.histogram(...) end

---An image, or several in a grid.
---@param t amp.Tensor H x W, C x H x W or N x C x H x W, C being 1, 3 or 4
---@param given any
function amp.plot.image(t, given) end

---A figure of one line: line(y), line(x, y), and options of the figure and of the line in one table last.
function amp.plot.line(...) end

---A figure of points: scatter(x, y, options).
function amp.plot.scatter(...) end

---Autocast class of an op: 'lower', 'fp32', 'fp32_unless_dtype', 'promote', 'special', 'banned', 'passthrough'.
---@param op string amp's name, or one of PyTorch, Apex, MXNet or MegEngine; one that stands for several ops ('Convolution') gives the class that all of them have
function amp.policy(op) end

---Run fn once and say where its time and memory went.
---@param fn function
---@param given any
---@return table # rows {name, pass = 'forward', 'backward' or 'update' (optimizer, scaler), calls, time (seconds), bytes}, longest first; fields wall (seconds), lua (of these, outside the library), bytes, lost; its tostring is a table to read
---@return any # fn's results
function amp.profile(fn, given) end

---Make a bar.
---@param total number steps it has
---@param given? table label, file (standard error), interval seconds between drawings (0.1 on a terminal, 1 elsewhere), quiet (draw nothing), terminal (found out), clock (a function giving seconds)
function amp.progress(total, given) end

---fn with its float tensors cast to the widest dtype among them.
---@param fn function
function amp.promote_function(fn) end

---rand(2, 3): uniform in [0, 1)
function amp.rand(...) end

---As the function without _like, with shape, dtype and device of t, as far as {dtype, device} do not say otherwise, and in the
---layout of t where that is channels-last and no {memory_format} is given.
---@param t any
---@param o any
function amp.rand_like(t, o) end

---randint(high, shape), randint(low, high, shape): integers in [low, high), low 0 by default
---@param low any
---@param high any
---@param shape any
---@param o any
function amp.randint(low, high, shape, o) end

---randint_like(t, high), randint_like(t, low, high): integers in [low, high), shape and dtype of t
---@param t any
---@param low any
---@param high any
---@param o any
function amp.randint_like(t, low, high, o) end

---randn(2, 3): normal, mean 0 and standard deviation 1
function amp.randn(...) end

---As the function without _like, with shape, dtype and device of t, as far as {dtype, device} do not say otherwise, and in the
---layout of t where that is channels-last and no {memory_format} is given.
---@param t any
---@param o any
function amp.randn_like(t, o) end

---randperm(n): 1..n in random order
---@param n any
---@param o any
function amp.randperm(n, o) end

---register_half_function(module, 'name'), register_float_function, register_promote_function: in autocast regions the
---function's tensors are cast to 16 bits, to float32, or to the widest dtype among them. An op of amp or amp.nn.functional
---gets the class 'lower', 'fp32' or 'promote', so that methods, operators and layers which use it follow; of any other
---table the function in that place is replaced.
---@param module any
---@param name any
function amp.register_float_function(module, name) end

---register_half_function(module, 'name'), register_float_function, register_promote_function: in autocast regions the
---function's tensors are cast to 16 bits, to float32, or to the widest dtype among them. An op of amp or amp.nn.functional
---gets the class 'lower', 'fp32' or 'promote', so that methods, operators and layers which use it follow; of any other
---table the function in that place is replaced.
---@param module any
---@param name any
function amp.register_half_function(module, name) end

---register_half_function(module, 'name'), register_float_function, register_promote_function: in autocast regions the
---function's tensors are cast to 16 bits, to float32, or to the widest dtype among them. An op of amp or amp.nn.functional
---gets the class 'lower', 'fp32' or 'promote', so that methods, operators and layers which use it follow; of any other
---table the function in that place is replaced.
---@param module any
---@param name any
function amp.register_promote_function(module, name) end

---Count the peak of a device's memory anew, from what is live now.
---@param device? string default: the default device
function amp.reset_peak_memory(device) end

---The classes as built, of one op or of all.
---@param op any
function amp.reset_policy(op) end

---Regions as means of bilinear samples (He et al., 2017).
---@param ... any spatial_scale (1), sampling_ratio (-1: as many samples as a cell has pixels), aligned (false: as first published, half a pixel off), in places or in a table
---@return amp.Tensor # K x C x height x width, of the input's dtype; gradients go to the input
function amp.roi_align(...) end

---Regions as largest values of cells whose edges are whole pixels (Girshick, 2015).
---@return amp.Tensor # K x C x height x width, of the input's dtype; 0 where a cell has no pixels
function amp.roi_pool(...) end

---save(path, value): tables, numbers, strings and tensors, written atomically with a checksum. See amp/io/checkpoint.lua.
function amp.save(...) end

---Run fn(scaled_loss), which calls backward; then unscale the optimizers' gradients and update the scale.
---An overflow makes the next step of each of these optimizers do nothing.
---@param loss amp.Tensor (with a Trainer: or a list)
---@param optimizers any an optimizer or a list, as given to amp.initialize; or a Trainer
---@param o? table {loss_id = 1, model, delay_unscale = false}, before fn or behind it
---@param fn function
---@return any # fn's results
function amp.scale_loss(loss, optimizers, o, fn) end

---Run fn(...) and give back the memory of every tensor handle made inside, except those
---in its results (also in returned tables). A handle given back raises when it is used.
---@param fn function
---@return any # fn's results
function amp.scope(fn, ...) end

amp.serve = {}

---Makes a batcher: a function of one sample that waits.
---@param model any a module, a graph or a function of a batch; what it gives has the batch as first dimension: tensors, tables of them
---@param given any
---@return any # Batcher batcher(x) waits and gives; batcher:numbers(body) gives a list; batcher:submit(x), batcher:stats(), batcher:close()
function amp.serve.batcher(model, given) end

---Makes a scheduler.
---@return table # spawn(fn): a coroutine that begins in the next turn; sleep(ms): for one; after(ms, fn): calls fn in ms milliseconds; run(): until nothing is left, then raises the first error of a coroutine; signal, wait, wake, left: as a batcher's adapter
function amp.serve.loop() end

---Makes a function from a text to a list of numbers.
---@param graph amp.Graph of one tensor that gives one tensor, on the CPU
---@param shape table of its input, with the dimension of the batch: {1, 8}
---@param given? table dtype of its input (the default dtype); bytes = false: true takes the elements themselves, as amp.from_string does
---@return function # of a text as amp.from_text reads it; gives all numbers of the result in C order, a list; raises what amp.from_text and graph:run raise
function amp.serve.numbers(graph, shape, given) end

---Device of new tensors; 'cpu' at the start.
---@param device any
function amp.set_default_device(device) end

---dtype of new tensors (a float dtype); 'float32' at the start.
---@param dtype any
function amp.set_default_dtype(dtype) end

---Run fn(...) with recording on or off.
---@param on any
---@param fn any
function amp.set_grad_enabled(on, fn, ...) end

---Threads that kernels may use.
---@param n number
function amp.set_num_threads(n) end

---Give an op another class, in the whole process.
---@param op string as in amp.policy; each op that the name stands for gets the class
---@param class string
function amp.set_policy(op, class) end

---@param state table what get_rng_state gave
function amp.set_rng_state(state) end

---Binary cross entropy of logits, with what is right already counting less (Lin et al., 2017).
---@param inputs amp.Tensor logits of any shape
---@param targets amp.Tensor of the same shape, 0 to 1
---@param ... any alpha (0.25: weight of targets that are 1; negative: none), gamma (2), reduction ('none', 'mean', 'sum'); in places or in a table
function amp.sigmoid_focal_loss(inputs, targets, ...) end

---Views of at most `size` elements each along a dimension, or of the listed sizes.
---@param t any
---@param size any
---@param dim any
function amp.split(t, size, dim) end

---Cut a batch into one piece a device, and copy each there.
---@param t amp.Tensor
---@param devices table list of devices
---@param o? table {batch_axis = 1 (the dimension that is cut), even_split = true (false: the last piece takes what is left)}
---@return table # list of tensors
function amp.split_and_load(t, devices, o) end

---The losses' scales: {loss_scaler1 = {loss_scale, unskipped}, ...}. Waits for the device.
function amp.state_dict() end

---Make undefined globals errors, or stop it. Reading one is an error everywhere; assigning one for the first time is an
---error inside a function (at the outermost level of a file it defines the variable). Comparing a tensor with a number by
---==, which is never true, is an error as well then.
---@param switch? boolean default true
function amp.strict(switch) end

---A network layer by layer: output shape, parameters, dtype, bytes, multiply-adds, and totals. A graph node by node: what each
---gives, bytes moved, casts, what was fused and what not and why.
---@param net any
---@param ... any inputs: tensors or whatever its forward takes, or sizes ({1, 3, 32, 32}: ones of the network's dtype and device); none: parameters only
---@return table # rows {name, class, depth, shapes, dtype, bytes, parameters, mult_adds, calls}; fields parameters, trained, parameter_bytes, buffers, buffer_bytes, output_bytes, mult_adds, input; of a graph rows {name, op, shape, bytes, cast, chain, kept, view, joined, note}, fields bytes, casts, cast_bytes, kept, chains, joined, merged, missed ({first, second, as, why}), optimized; its tostring is a table to read
function amp.summary(net, ...) end

---A tensor of a number, a nested table of numbers (or booleans), or a copy of a tensor.
---@param data number|table|amp.Tensor
---@param o? table {dtype, device, requires_grad}
---@return amp.Tensor # 
function amp.tensor(data, o) end

---n views whose sizes differ by at most one, or views that begin at the listed indices (the first at 1).
---t:tensor_split(3), t:tensor_split({3, 5}, dim): 1..2, 3..4, 5..end
---@param t any
---@param where any
---@param dim any
function amp.tensor_split(t, where, dim) end

---Product summed over dimensions of both tensors.
---@param input amp.Tensor
---@param other amp.Tensor
---@param dims? number|table how many: input's last, other's first (default 2); or {dimensions of input, dimensions of other}
---@return amp.Tensor # input's other dimensions, then other's
function amp.tensordot(input, other, dims, ...) end

amp.text = {}

---Files of tokens, and batches that stream from them.
---
---A file is nothing but ids in 16 or 32 bits, little end first, and they count from 0, as other tools write and read them. Rows are
---windows of it, read where they lie when they are asked for (by pread; nothing is mapped, nothing else is kept): a file may be larger
---than memory. The order of an epoch is a permutation that is computed, not stored, from the seed and the epoch: the place in it is two
---numbers, so a run goes on where it stopped.
---@return amp.text.TokenFile
function amp.text.TokenFile(...) end

amp.text.Tokenizer = {}

---A tokenizer of a decoded file.
---@param s any
function amp.text.Tokenizer.build(s) end

amp.text.Tokenizer.class = {}

---Text of ids, a list or a tensor (n, or 1 x n). skip_special_tokens: true by default.
---@param ids any
---@param o any
function amp.text.Tokenizer.class.decode(ids, o) end

---A list of ids. add_special_tokens: true by default.
---@param text any
---@param o any
function amp.text.Tokenizer.class.encode(text, o) end

---ids and mask, int64 tensors of one row a text, padded on the right.
---@param texts table a list of strings
---@param o? table padding: true (to the longest, the default) or 'max_length'; truncation: to max_length, the special tokens stay; add_special_tokens: true by default. Where padding or truncation is left out, the file's own section of that name holds, as far as the length and the side (false: nothing is done)
---@return amp.Tensor # texts x longest, int64
---@return amp.Tensor # the same, 1 where an id counts
function amp.text.Tokenizer.class.encode_batch(texts, o) end

---The id of a token, from 1; nil: there is none.
---@param token any
function amp.text.Tokenizer.class.id(token) end

---Writes the tokenizer as a tokenizer.json.
---@param path any
function amp.text.Tokenizer.class.save(path) end

---How many tokens there are, added ones included.
function amp.text.Tokenizer.class.size() end

---The token of an id, which counts from 1; nil: there is none.
---@param id any
function amp.text.Tokenizer.class.token(id) end

---Read a tokenizer.json. Unknown parts and fields of a wrong type are errors that name them.
---@param path any
function amp.text.Tokenizer.from_file(path) end

amp.text.models = {}

---BERT (Devlin et al., 2019), the encoder with its pooler. Parameters have the published names, lists counted from 1:
---encoder.layer.1.attention.self.query.weight.
---Make one, with fresh weights.
---@param given? {embedding_dim?: any, max_norm?: any, norm_type?: number, num_embeddings?: any, padding_idx?: any} a config with the published names: vocab_size (30522), hidden_size (768), num_hidden_layers (12), num_attention_heads (12), intermediate_size (3072), hidden_act ('gelu'), hidden_dropout_prob, attention_probs_dropout_prob (0.1), max_position_embeddings (512), type_vocab_size (2), layer_norm_eps (1e-12), initializer_range (0.02), add_pooling_layer (true)
---@return amp.text.models.BERT
function amp.text.models.BERT(given) end

---GPT-2 (Radford et al., 2019): learned positions, norms before the blocks, one head tied to the table of tokens. Parameters have
---the published names, lists counted from 1: transformer.h.1.attn.c_attn.weight; weights are out x in.
---Make one, with fresh weights.
---@param given? {embedding_dim?: any, max_norm?: any, norm_type?: number, num_embeddings?: any, padding_idx?: any} a config with the published names: vocab_size (50257), n_positions (1024), n_embd (768), n_layer (12), n_head (12), n_inner (4 n_embd), activation_function ('gelu_new'), resid_pdrop, embd_pdrop, attn_pdrop (0.1), layer_norm_epsilon (1e-5), initializer_range (0.02), tie_word_embeddings (true)
---@return amp.text.models.GPT2
function amp.text.models.GPT2(given) end

---Llama (Touvron et al., 2023): RMSNorm, rotary positions, heads of keys shared by several of queries, SwiGLU. Parameters have the
---published names, lists counted from 1: model.layers.1.self_attn.q_proj.weight.
---Make one, with fresh weights.
---@param given? {base?: any, max_position_embeddings?: any, max_positions?: any, scaling?: any, theta?: any} a config with the published names: vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads (num_attention_heads), head_dim (hidden_size / num_attention_heads), max_position_embeddings, rms_norm_eps, rope_theta, rope_scaling ({rope_type = 'linear' | 'dynamic' | 'llama3', factor, ...}), attention_bias, mlp_bias (false), tie_word_embeddings (false), initializer_range (0.02)
---@return amp.text.models.Llama
function amp.text.models.Llama(given) end

---SentenceEncoder: texts as vectors of length 1, so that a product says how alike two are. A folder in the form of
---sentence-transformers: a BERT with its tokenizer, 1_Pooling/config.json (what becomes of the tokens' vectors; the mean without it)
---and sentence_bert_config.json (how many tokens count).
---Texts as vectors of length 1: SentenceEncoder.from_pretrained(dir) makes one of a folder, `encode` is what it is for.
---@return amp.text.models.SentenceEncoder
function amp.text.models.SentenceEncoder() end

---The model of a folder, of the class that its config.json names, in eval mode.
---@param dir string with config.json and model.safetensors (or shards with an index, or pytorch_model.bin)
---@param given? table device, dtype (amp's defaults), gradient_checkpointing (false)
function amp.text.models.from_pretrained(dir, given) end

---Texts in rows of one length; a model that gets segment_ids and position_ids gives what it gives for each text alone.
---@param lists table of lists of ids
---@param given table length of a row, pad (1: the id where nothing is)
---@return table # {ids, segment_ids, position_ids, labels}, each rows x length, int64; labels are -100 at a text's first id and at padding
function amp.text.models.pack(lists, given) end

---Trains a byte-level BPE tokenizer of exactly vocab_size tokens (256 at least) on text files.
---@param files any
---@param o any
function amp.text.train_bpe(files, o) end

---Write documents one after the other, each followed by an id that ends it.
---@param path string replaced whole or not at all
---@param source table|function a list of texts or of lists of ids (from 1), or a function that gives the next one, nil at the end
---@param given? table tokenizer (for texts), eos (the id that ends a document, from 1, or a token of the tokenizer; nil: none), dtype ('uint16', or 'uint32' where the tokenizer has more than 65536 tokens)
---@return number # ids written
function amp.text.write_tokens(path, source, given) end

---The tensor tiled; missing leading repeats count as 1. (`repeat` is a word of Lua's grammar.)
---@param t any
function amp.tile(t, ...) end

---A module or a function as a graph: it runs once for these inputs, and the ops that it calls are recorded. With a tensor first it
---is the sum of a matrix's diagonal, as ever. amp.graph.trace is the long form, with options.
---@param first any
---@param ... any its arguments: tensors, tables of tensors, plain values (which the graph takes for fixed)
---@return amp.Graph # 
function amp.trace(first, ...) end

---Traceback of the place where the last error that amp saw was raised.
---@return string # traceback
function amp.traceback() end

---max(0, margin + d(anchor, positive) - d(anchor, negative)) with a distance of one's own.
---@param anchor amp.Tensor
---@param positive amp.Tensor
---@param negative amp.Tensor
---@param given? table {distance_function(a, b) -> tensor of distances (Euclidean over the last dimension), margin = 1, swap = false (the smaller of the negative's two distances), reduction = 'mean'}
---@return amp.Tensor # 
function amp.triplet_margin_with_distance_loss(anchor, positive, negative, given) end

---A list of the slices of a dimension, which goes.
---@param t any
---@param dim any
function amp.unbind(t, dim) end

---Unscale a trainer's gradients now, to clip or look at them; its step does it otherwise.
---@param trainer any
---@return any # the trainer
function amp.unscale(trainer) end

---A list of the slices of a dimension, which goes.
---@param t any
---@param dim any
function amp.unstack(t, dim) end

---Make runs repeat bit by bit: same program, same seed, same machine, same results. On a GPU, sums then don't depend on the
---order in which threads come, and ways of doing a product are not chosen by timing; that costs speed. On the CPU runs repeat
---anyhow, for the same number of threads. For the whole process, and devices found later.
---@param on? boolean default true
function amp.use_deterministic(on) end

---The version, and where the Lua files and the library were found.
---@return string # version
---@return string # directory of the Lua files
---@return string # path of the library
function amp.version() end

amp.vision = {}

---Make the loss.
---@param given? table negative_mining_ratio (3), rho (1: where smooth L1 becomes linear), lambd (1: weight of the box loss), min_hard_negatives (0)
function amp.vision.SSDMultiBoxLoss(given) end

amp.vision.datasets = {}

---Pictures of 32 x 32 with their classes, from the binary files.
---@param given string|table the folder of the files, or root, train (true: the training pictures), transform (a function of a picture)
function amp.vision.datasets.CIFAR10(given) end

---Pictures of 32 x 32 with their classes, from the binary files.
---@param given string|table the folder of the files, or root, train (true: the training pictures), transform (a function of a picture)
function amp.vision.datasets.CIFAR100(given) end

---@param given table images (the pictures' folder), annotations (the JSON file), transform, skip_bad (false: as of VOCDetection)
function amp.vision.datasets.COCODetection(given) end

amp.vision.datasets.ImageFolder = amp.data.ImageFolder

---@param given table root, year ('2012'), split ('train'), classes (names; VOC's 20), transform, skip_bad (false: a picture that cannot be read is an error; true: the next one takes its place, with one warning)
function amp.vision.datasets.VOCDetection(given) end

---Make a dataset of drawn pictures.
---@param given? table n (1000 pictures), size (64; or {height, width}, at least 16), classes (3, at most 8), seed (1), objects ({1, 4}: how many a picture has), transform (function of an item)
---@return table # a dataset with `classes` (names); an item is {image, boxes, labels, mask}: float32 3 x H x W from 0 to 1; float32 n x 4 corners in pixels; int64 n from 1; int64 H x W, 1 where there is nothing, else the label + 1
function amp.vision.datasets.shapes(given) end

amp.vision.models = {}

---MobileNet v2.
---@param given? table classes (1000, or a list of names), dropout (0.2)
---@return any # nn.Module N x 3 x H x W to N x classes; names of parameters are torchvision's
function amp.vision.models.mobilenet_v2(given) end

---ResNet-101; options are those of resnet50.
---@param given any
function amp.vision.models.resnet101(given) end

---ResNet-152; options are those of resnet50.
---@param given any
function amp.vision.models.resnet152(given) end

---ResNet-18.
---@param given? table classes (1000, or a list of names), version ('v1': no difference here), width (64: channels of the first convolution)
---@return any # nn.Module N x 3 x H x W to N x classes; names of parameters are torchvision's
function amp.vision.models.resnet18(given) end

---ResNet-34; options are those of resnet18.
---@param given any
function amp.vision.models.resnet34(given) end

---ResNet-50; options are those of resnet18. With version = 'v1' the stride is in the first 1x1 of a stage.
---@param given any
function amp.vision.models.resnet50(given) end

---SSD-300 on VGG-16.
---@param given? table classes (90, or a list of names), preset ('coco' or 'voc': sizes of anchors)
---@return any # nn.Module a detector, as ssd_512_resnet50_v1 gives one, of pictures of at least 280 x 280
function amp.vision.models.ssd_300_vgg16(given) end

---SSD-512 on ResNet-50 v1.
---@param given? table classes (80, or a list of names), preset ('coco' or 'voc': sizes of anchors), width (64), side (512)
---@return any # nn.Module a detector of N x 3 x H x W pictures. In training mode it gives cls (N x A x (C + 1)), box (N x A x 4) and anchors (1 x A x 4); in evaluation mode ids, scores and boxes in pixels, 100 a picture
function amp.vision.models.ssd_512_resnet50_v1(given) end

---U-Net, for a class of each pixel.
---@param given? table classes (2, or a list of names), in_channels (3), width (64: channels of the first stage), depth (4: stages down)
---@return any # nn.Module N x in_channels x H x W to N x classes x H x W, before softmax
function amp.vision.models.unet(given) end

---VGG-16.
---@param given? table classes (1000, or a list of names), dropout (0.5)
---@return any # nn.Module N x 3 x H x W (at least 32 x 32) to N x classes; names of parameters are torchvision's
function amp.vision.models.vgg16(given) end

---Vision transformer, base size, patches of 16 x 16.
---@param given? table classes (1000, or a list of names), image_size (224, a multiple of 16), dropout (0)
---@return any # nn.Module N x 3 x S x S, S = image_size, to N x classes; names of parameters are torchvision's
function amp.vision.models.vit_b_16(given) end

amp.vision.ops = {}

---nms within each group: boxes of different groups never suppress each other.
---@param boxes amp.Tensor K x 4
---@param scores amp.Tensor K
---@param idxs amp.Tensor K whole numbers: the box's group, such as its class
---@param iou_threshold number
---@return amp.Tensor # int64, places of those that stay, the best first
function amp.vision.ops.batched_nms(boxes, scores, idxs, iou_threshold) end

---Boxes in another form: 'xyxy' corners, 'xywh' a corner and sizes, 'cxcywh' a centre and sizes.
---@param boxes amp.Tensor ... x 4
---@param from string
---@param to string
function amp.vision.ops.box_convert(boxes, from, to) end

---Overlap over union of every pair.
---@param boxes1 amp.Tensor N x 4
---@param boxes2 amp.Tensor M x 4
---@return amp.Tensor # N x M; NaN where neither has an area
function amp.vision.ops.box_iou(boxes1, boxes2) end

---Boxes cut at the edges of a picture.
---@param boxes amp.Tensor ... x 4, corners in pixels
---@param size table {height, width}
function amp.vision.ops.clip_boxes(boxes, size) end

---Detections from probabilities and offsets, the best first.
---@param cls_prob amp.Tensor N x (classes + 1) x A, after softmax, background first
---@param loc_pred amp.Tensor N x 4A, or N x A x 4
---@param anchors amp.Tensor 1 x A x 4, corners 0 to 1
---@param given? table clip (true), threshold (0.01), background_id (0), nms_threshold (0.5; not in 0 to 1: no suppression), force_suppress (false: within a class only), variances ({0.1, 0.1, 0.2, 0.2}), nms_topk (-1: all)
---@return amp.Tensor # N x A x 6: class from 1 (-1: none, or suppressed), score, corners; -1 in what is left
function amp.vision.ops.multibox_detection(cls_prob, loc_pred, anchors, given) end

---The anchors of a feature map: for each cell each size with the first ratio, then the first size with each other ratio.
---@param data amp.Tensor N x C x H x W; its size and device count
---@param given? table sizes ({1}), ratios ({1}), clip (false), steps ({-1, -1}: 1/H and 1/W; y before x), offsets ({0.5, 0.5}: of a cell's centre, y before x)
---@return amp.Tensor # float32, 1 x (H * W * (#sizes + #ratios - 1)) x 4, corners 0 to 1
function amp.vision.ops.multibox_prior(data, given) end

---What each anchor is trained towards.
---@param anchors amp.Tensor 1 x A x 4, corners 0 to 1
---@param labels amp.Tensor N x L x 5: class from 1, corners 0 to 1; padded with -1
---@param cls_preds amp.Tensor N x (classes + 1) x A, before softmax, background first
---@param given? table overlap_threshold (0.5), ignore_label (-1), negative_mining_ratio (-1: all that is not matched is background), negative_mining_thresh (0.5), minimum_negative_samples (0), variances ({0.1, 0.1, 0.2, 0.2})
---@return amp.Tensor # box, N x 4A: offsets to the matched box over the variances, else 0
---@return amp.Tensor # mask, N x 4A: 1 where an anchor is matched
---@return amp.Tensor # cls, N x A: 0 background, the class where matched, ignore_label elsewhere and in pictures without boxes
function amp.vision.ops.multibox_target(anchors, labels, cls_preds, given) end

---The boxes that no better one, which itself stays, overlaps by more than iou_threshold. Waits for the device: how
---many there are is not known before.
---@param boxes amp.Tensor K x 4
---@param scores amp.Tensor K
---@param iou_threshold number
---@return amp.Tensor # int64, their places (from 1), the best first
function amp.vision.ops.nms(boxes, scores, iou_threshold) end

---Regions as means of bilinear samples (He et al., 2017).
---@param ... any spatial_scale (1), sampling_ratio (-1: as many samples as a cell has pixels), aligned (false: as first published, half a pixel off), in places or in a table
---@return amp.Tensor # K x C x height x width, of the input's dtype; gradients go to the input
function amp.vision.ops.roi_align(...) end

---Regions as largest values of cells whose edges are whole pixels (Girshick, 2015).
---@return amp.Tensor # K x C x height x width, of the input's dtype; 0 where a cell has no pixels
function amp.vision.ops.roi_pool(...) end

---Binary cross entropy of logits, with what is right already counting less (Lin et al., 2017).
---@param inputs amp.Tensor logits of any shape
---@param targets amp.Tensor of the same shape, 0 to 1
---@param ... any alpha (0.25: weight of targets that are 1; negative: none), gamma (2), reduction ('none', 'mean', 'sum'); in places or in a table
function amp.vision.ops.sigmoid_focal_loss(inputs, targets, ...) end

amp.vision.transforms = {}

---CenterCrop(n | {h, w}); a smaller picture gets zeros around it.
---@param size any
function amp.vision.transforms.CenterCrop(size) end

---ColorJitter{brightness, contrast, saturation, hue}: each {least, most} of a factor (of hue: turns), or a number n for {1 - n, 1 + n}
---(of hue: {-n, n}); done in random order.
---@param given any
function amp.vision.transforms.ColorJitter(given) end

---Compose{…}: one transform after the other; functions may stand among them.
---@param list any
function amp.vision.transforms.Compose(list, ...) end

---Normalize(mean, std): (x - mean) / std, a number a channel.
---@param mean any
---@param std any
function amp.vision.transforms.Normalize(mean, std) end

---Pad(n | {x, y} | {left, top, right, bottom}, {fill = 0}).
---@param padding any
---@param given any
function amp.vision.transforms.Pad(padding, given) end

---RandomCrop(n | {h, w}, {padding, pad_if_needed = false, fill = 0}).
---@param size any
---@param given any
function amp.vision.transforms.RandomCrop(size, given) end

---RandomErasing{p = 0.5, scale = {0.02, 0.33}, ratio = {0.3, 3.3}, value = 0 | {a number a channel} | 'random'}.
---@param given any
function amp.vision.transforms.RandomErasing(given) end

---RandomHorizontalFlip{p = 0.5}: left and right change places, with probability p.
---@param given any
function amp.vision.transforms.RandomHorizontalFlip(given) end

---RandomResizedCrop(n | {h, w}, {scale = {0.08, 1}, ratio = {3/4, 4/3}}).
---@param size any
---@param given any
function amp.vision.transforms.RandomResizedCrop(size, given) end

---RandomVerticalFlip{p = 0.5}: top and bottom change places, with probability p.
---@param given any
function amp.vision.transforms.RandomVerticalFlip(given) end

---Resize(n | {h, w}): n is the shorter side; bilinear, antialiased.
---@param size any
function amp.vision.transforms.Resize(size) end

---ToFloat(): float32 from 0 to 1 of bytes; floats stay.
function amp.vision.transforms.ToFloat() end

---Default of amp.warn.
---@param message string
function amp.warn(message) end

---Default of amp.write_log.
---@param line string
function amp.write_log(line) end

---zeros(2, 3), zeros({2, 3}, {dtype, device, requires_grad})
function amp.zeros(...) end

---As the function without _like, with shape, dtype and device of t, as far as {dtype, device} do not say otherwise, and in the
---layout of t where that is channels-last and no {memory_format} is given.
---@param t any
---@param o any
function amp.zeros_like(t, o) end

return amp
