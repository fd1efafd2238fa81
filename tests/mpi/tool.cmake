# Checkpoints of ranks that mpirun starts equal those of one process. Takes TOOL, MPIRUN and FOLDER.
file(MAKE_DIRECTORY ${FOLDER})
set(train ${TOOL} train bert --documents 60 --vocabulary 100 --length 16 --batch 4 --steps 3 --threads 1 --seed 3)
set(mpirun ${MPIRUN} --allow-run-as-root --oversubscribe)
set(ranks ${mpirun} -n 2)
set(patient --rank-timeout 600)
foreach(file one two one_staged two_staged one_normed two_normed)
  file(REMOVE ${FOLDER}/${file}.safetensors)
endforeach()
execute_process(COMMAND ${train} --replicas 2 --checkpoint ${FOLDER}/one.safetensors COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${ranks} ${train} ${patient} --checkpoint ${FOLDER}/two.safetensors COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${FOLDER}/one.safetensors ${FOLDER}/two.safetensors
  COMMAND_ERROR_IS_FATAL ANY)
# So do checkpoints of ranks with a stage each.
set(stages --stages 2 --micro-batches 2 --pipeline 1f1b)
execute_process(COMMAND ${train} ${stages} --checkpoint ${FOLDER}/one_staged.safetensors COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${ranks} ${train} ${stages} ${patient} --checkpoint ${FOLDER}/two_staged.safetensors
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${FOLDER}/one_staged.safetensors
  ${FOLDER}/two_staged.safetensors COMMAND_ERROR_IS_FATAL ANY)
# So do checkpoints of residual networks, whose norms have the statistics of all ranks.
set(normed ${TOOL} train resnet --depth 8 --images 48 --size 12 --batch 16 --steps 3 --norm-replicas 2 --threads 1 --seed 3)
execute_process(COMMAND ${normed} --replicas 2 --checkpoint ${FOLDER}/one_normed.safetensors COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${ranks} ${normed} ${patient} --checkpoint ${FOLDER}/two_normed.safetensors
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${FOLDER}/one_normed.safetensors
  ${FOLDER}/two_normed.safetensors COMMAND_ERROR_IS_FATAL ANY)
# All ranks refuse a wrong option at once.
foreach(command train normed)
  execute_process(COMMAND ${ranks} ${${command}} --estimate RESULT_VARIABLE status ERROR_VARIABLE error)
  if(status EQUAL 0 OR NOT error MATCHES "without mpirun")
    message(FATAL_ERROR "ranks estimate: status ${status}, ${error}")
  endif()
endforeach()
# A file that one rank lacks ends all ranks at once, with a message that names it.
string(TIMESTAMP begin %s)
execute_process(
  COMMAND ${mpirun} -n 1 ${train} --replicas 2 --rank-timeout 600 :
    -n 1 ${TOOL} train bert --data ${FOLDER}/nowhere.safetensors --length 16 --batch 4 --steps 3 --threads 1 --seed 3
      --replicas 2 --rank-timeout 600
  RESULT_VARIABLE status ERROR_VARIABLE error)
string(TIMESTAMP end %s)
math(EXPR seconds "${end} - ${begin}")
if(status EQUAL 0 OR NOT error MATCHES "nowhere" OR seconds GREATER 300)
  message(FATAL_ERROR "a rank without text: status ${status} after ${seconds} s, ${error}")
endif()
