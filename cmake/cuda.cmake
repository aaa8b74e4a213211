# The CUDA backend: lib/fp4lab/cuda/README.md and lib/fp4lab/gpu/README.md.
find_program(FP4LAB_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin
             DOC "NVIDIA's compiler")
set(fp4lab_cuda_on FALSE)
if(FP4LAB_CUDA AND FP4LAB_NVCC)
  get_filename_component(FP4LAB_CUDA_ROOT ${FP4LAB_NVCC} REALPATH)
  get_filename_component(FP4LAB_CUDA_ROOT ${FP4LAB_CUDA_ROOT} DIRECTORY)
  get_filename_component(FP4LAB_CUDA_ROOT ${FP4LAB_CUDA_ROOT} DIRECTORY)
  # The runtime in its static form: the program starts where there is no driver. A toolkit's lib64 is its own
  # machine's; that of 64-bit Arm servers is NVIDIA's "sbsa".
  set(cudart_folders lib64 lib targets/x86_64-linux/lib)
  if(CMAKE_CROSSCOMPILING)
    set(cudart_folders targets/sbsa-linux/lib)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(cudart_folders lib64 lib targets/sbsa-linux/lib)
  endif()
  find_library(FP4LAB_CUDART cudart_static HINTS ${FP4LAB_CUDA_ROOT} PATH_SUFFIXES ${cudart_folders})
  # nvcc knows an Arm compiler by its name, and looks for headers where such a toolkit has them; they are the same.
  set(fp4lab_cuda_includes)
  if(CMAKE_CROSSCOMPILING)
    set(fp4lab_cuda_includes -I ${FP4LAB_CUDA_ROOT}/include -isystem ${FP4LAB_CUDA_ROOT}/include/cccl)
  endif()
  if(FP4LAB_CUDART)
    set(fp4lab_cuda_on TRUE)
  endif()
endif()
if(NOT fp4lab_cuda_on AND FP4LAB_CUDA AND NOT FP4LAB_CUDA STREQUAL AUTO)
  message(FATAL_ERROR "FP4LAB_CUDA=ON needs nvcc and libcudart_static.a (CUDA 13): put nvcc on the PATH")
endif()
message(STATUS "CUDA backend: ${fp4lab_cuda_on} (FP4LAB_CUDA=${FP4LAB_CUDA})")

# Training on the GPU needs cuBLASLt's header only; the library is loaded when a GPU trains.
set(fp4lab_gpu_on FALSE)
if(fp4lab_cuda_on)
  find_path(FP4LAB_CUBLASLT cublasLt.h HINTS ${FP4LAB_CUDA_ROOT}/include DOC "Where cublasLt.h is")
  if(FP4LAB_CUBLASLT)
    set(fp4lab_gpu_on TRUE)
  endif()
endif()

# The chips that kernels are compiled for: Hopper, on which they have run, and the GPUs of this
# machine; on a CI machine all. Each takes as long as the first, and PTX for later ones nearly so.
set(FP4LAB_CUDA_ALL_CHIPS 90a 100a 103a 120a)
set(fp4lab_cuda_chips 90a)
if(fp4lab_is_ci)
  set(fp4lab_cuda_chips ${FP4LAB_CUDA_ALL_CHIPS})
elseif(fp4lab_cuda_on)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE ignored)
  foreach(chip 100a 103a 120a 121a)
    string(REGEX REPLACE "(.)a$" ".\\1" capability ${chip})  # 10.0 of 100a
    if("${capabilities}" MATCHES "(^|\n)${capability}")
      list(APPEND fp4lab_cuda_chips ${chip})
    endif()
  endforeach()
endif()
set(FP4LAB_CUDA_ARCHITECTURES ${fp4lab_cuda_chips} CACHE STRING
    "Chips to compile CUDA kernels for, as in 90a;100a;103a;120a")
option(FP4LAB_CUDA_PTX "PTX for later chips in the CUDA objects, which the driver compiles there" ON)
if(fp4lab_cuda_on)
  message(STATUS "CUDA chips: ${FP4LAB_CUDA_ARCHITECTURES}; PTX for later ones: ${FP4LAB_CUDA_PTX}")
endif()
# The tests of a CI machine, which has no GPU, read machine code: there a file is compiled for the chips
# alone for which it has code of its own. All chips took half of the time of CI.
set(fp4lab_cuda_sampled OFF)
if(fp4lab_is_ci AND FP4LAB_TESTS AND NOT capabilities)
  set(fp4lab_cuda_sampled ON)
endif()
option(FP4LAB_CUDA_SAMPLED "Leave out chips for which a file has no code of its own: such a program does \
not run on them" ${fp4lab_cuda_sampled})
if(fp4lab_cuda_on AND FP4LAB_CUDA_SAMPLED)
  message(STATUS "CUDA chips: a file is compiled for those that it has code of its own for")
endif()

# fp4lab_cuda_chips(OUT CODE): the chips of this build for a file that has code for ALL chips of its own,
# for each FAMILY (sm_100a and sm_103a are one), or for none (SAME).
function(fp4lab_cuda_chips out code)
  set(chips ${FP4LAB_CUDA_ARCHITECTURES})
  if(FP4LAB_CUDA_SAMPLED)
    if(code STREQUAL SAME)
      list(GET chips 0 chips)
    elseif(code STREQUAL FAMILY AND 100a IN_LIST chips)
      list(REMOVE_ITEM chips 103a)
    endif()
  endif()
  set(${out} ${chips} PARENT_SCOPE)
endfunction()

# fp4lab_cuda_kernels(LAYER [ALL FILES...] [FAMILY FILES...] [SAME FILES...]): compiles .cu files of the
# layer by commands of our own, as CMake 3.25 knows no C++20 for CUDA, and links them into the library.
# The words say for which chips a file has code of its own. PTX, machine code and the report on registers
# stay in cuda/NAME, where tests read them, and the list of chips in cuda/NAME.chips.
function(fp4lab_cuda_kernels layer)
  set(code ALL)
  foreach(file ${ARGN})
    if(file MATCHES "^(ALL|FAMILY|SAME)$")
      set(code ${file})
      continue()
    endif()
    fp4lab_cuda_chips(chips ${code})
    set(gencode)
    if(FP4LAB_CUDA_PTX)
      set(gencode -gencode=arch=compute_90,code=compute_90)
    endif()
    foreach(chip ${chips})
      list(APPEND gencode -gencode=arch=compute_${chip},code=sm_${chip})
    endforeach()
    get_filename_component(name ${file} NAME_WE)
    get_property(names GLOBAL PROPERTY FP4LAB_CUDA_NAMES)
    if(name IN_LIST names)
      message(FATAL_ERROR "${layer}/${file}: another .cu file has this name, and cuda/${name} is its folder")
    endif()
    set_property(GLOBAL APPEND PROPERTY FP4LAB_CUDA_NAMES ${name})
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    set(folder ${PROJECT_BINARY_DIR}/cuda/${name})
    file(MAKE_DIRECTORY ${folder})
    string(REPLACE ";" " " chips "${code} ${chips}")
    file(CONFIGURE OUTPUT ${folder}.chips CONTENT "${chips}\n")
    add_custom_command(OUTPUT ${folder}/${name}.o
      # An earlier build's PTX must not stand in for what this one left out.
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND ${PROJECT_SOURCE_DIR}/tools/logged.sh ${folder}/ptxas.log
        ${FP4LAB_NVCC} -c ${source} -o ${folder}/${name}.o
        -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr --extended-lambda
        -Xcompiler=-ffp-contract=off,-fPIC -ccbin ${CMAKE_CXX_COMPILER}
        ${gencode} -Xptxas -v --keep --keep-dir ${folder}
        -I ${PROJECT_SOURCE_DIR}/lib ${fp4lab_cuda_includes} -MD -MF ${folder}/${name}.d
      DEPENDS ${source} DEPFILE ${folder}/${name}.d
      COMMENT "Compiling lib/fp4lab/${layer}/${file}" VERBATIM)
    list(APPEND objects ${folder}/${name}.o)
  endforeach()
  # A command is known in its own folder only: this target runs it, and fp4lab waits for the target.
  add_custom_target(fp4lab_${layer}_kernels DEPENDS ${objects})
  add_dependencies(fp4lab fp4lab_${layer}_kernels)
  target_sources(fp4lab PRIVATE ${objects})
  set_source_files_properties(${objects} TARGET_DIRECTORY fp4lab
    PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
endfunction()
