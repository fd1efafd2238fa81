# The built-in options of training, by command: configs/NAME.toml.
function(embed_configs variable)
  set(named "")
  foreach(name IN LISTS ARGN)
    list(APPEND named ${name} ${PROJECT_SOURCE_DIR}/configs/${name}.toml)
  endforeach()
  tessera_embed(tessera-cli cli/config.h tessera::cli ${variable} ${named})
endfunction()
embed_configs(kBertConfigs mlperf-v1.0-pod16 mlperf-v1.0-pod64 mlperf-v2.0-pod16 mlperf-v2.0-pod64)
embed_configs(kResnetConfigs mlperf-v1.0-resnet50-pod16 mlperf-v1.0-resnet50-pod64
              mlperf-v1.1-resnet50-pod16 mlperf-v1.1-resnet50-pod64)
