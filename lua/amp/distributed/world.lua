--- Which processes belong together, as the environment says that started them: mpirun of Open MPI or MPICH, srun, or
-- PyTorch's launcher. Loads nothing.
-- @module amp.distributed.world
local M = {}

local function number(name)
  local v = tonumber(os.getenv(name) or '')
  return v and v % 1 == 0 and v >= 0 and v or nil
end

-- name of the engine's plug-in, who started, number of processes, this one's place on its host (both from 0), how to start instead
local function mpi()
  local size = number 'OMPI_COMM_WORLD_SIZE'
  if size then
    return { plugin = 'mpi_openmpi', by = "Open MPI's mpirun", size = size, rank = number 'OMPI_COMM_WORLD_RANK',
      place = number 'OMPI_COMM_WORLD_LOCAL_RANK', places = number 'OMPI_COMM_WORLD_LOCAL_SIZE' }
  end
  local step = number 'SLURM_STEP_NUM_TASKS' or 1
  if number 'PMIX_RANK' and step >= 1 then
    return { plugin = 'mpi_openmpi', by = 'srun', size = step, rank = number 'PMIX_RANK', place = number 'SLURM_LOCALID' }
  end
  size = number 'PMI_SIZE'
  if size then
    return { plugin = 'mpi_mpich', by = step > 1 and 'srun' or "MPICH's mpirun", size = size, rank = number 'PMI_RANK',
      place = number 'MPI_LOCALRANKID' or number 'SLURM_LOCALID', places = number 'MPI_LOCALNRANKS' }
  end
  if step > 1 and number 'SLURM_PROCID' then
    return { by = 'srun', size = step, rank = number 'SLURM_PROCID', place = number 'SLURM_LOCALID',
      lacks = 'srun gave it no MPI: start with srun --mpi=pmix (srun --mpi=list shows what there is)' }
  end
end

local function torch()
  local size = number 'WORLD_SIZE'
  if not size or not number 'RANK' then return nil end
  return { by = "PyTorch's launcher", size = size, rank = number 'RANK', place = number 'LOCAL_RANK' or 0, torch = true }
end

--- What started this process.
-- @treturn table {by, size, rank, place (on its host), places (there), plugin, torch}; size 1 where nothing did
function M.find()
  local found = mpi()
  if not found or found.size == 1 then
    local other = torch()
    if other and other.size > 1 then found = other end
  end
  return found or { by = 'nothing', size = 1, rank = 0, place = 0 }
end

--- Plug-ins of MPI by name of their library.
M.mpis = { 'mpi_openmpi', 'mpi_mpich' }

return M
