# The built-in options of training: configs/NAME.toml.
set(named_configs "")
foreach(name IN ITEMS mlperf-v1.0-pod16 mlperf-v1.0-pod64 mlperf-v2.0-pod16 mlperf-v2.0-pod64)
  list(APPEND named_configs ${name} ${PROJECT_SOURCE_DIR}/configs/${name}.toml)
endforeach()
tessera_embed(tessera-cli cli/config.h tessera::cli kBuiltinConfigs ${named_configs})
