# Libraries that are linked statically, so that what is installed needs nothing but libc. The system's are used if it
# has them; otherwise, and always with HVD_BUNDLED, those in third_party/sources, which an sdist contains
# (tools/bundle.py puts them there). libraries.toml names their versions and origins.
option(HVD_BUNDLED "build the libraries in third_party/sources, even if the system has them" OFF)
set(HVD_BUNDLE ${CMAKE_CURRENT_LIST_DIR}/sources)

# hvd_static_library(NAME HEADER ARCHIVE PACKAGE): the library is the target NAME. Its own sources are compiled by the
# function hvd_bundle_NAME.
function(hvd_static_library target header archive package)
  if(NOT HVD_BUNDLED)
    find_path(${target}_INCLUDE ${header})
    find_library(${target}_ARCHIVE NAMES ${archive})
  endif()
  if(${target}_INCLUDE AND ${target}_ARCHIVE)
    add_library(${target} STATIC IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${target}_ARCHIVE}
                                               INTERFACE_INCLUDE_DIRECTORIES ${${target}_INCLUDE})
  else()
    hvd_bundled_library(${target} ${header} ${archive} ${package})
  endif()
endfunction()

# The same of a library that Debian has as source, in /usr/share/TARGET: its files, separated by commas.
function(hvd_static_source target header sources package)
  string(REPLACE "," ";" names ${sources})
  set(paths)
  if(NOT HVD_BUNDLED)
    find_path(${target}_INCLUDE ${header} PATH_SUFFIXES ${target} PATHS /usr/share/include)
    foreach(name ${names})
      find_file(${target}_${name} ${name} PATHS /usr/share/${target} NO_DEFAULT_PATH)
      list(APPEND paths ${${target}_${name}})
    endforeach()
  endif()
  if(${target}_INCLUDE AND NOT paths MATCHES "NOTFOUND")
    add_library(${target} STATIC ${paths})
    target_include_directories(${target} SYSTEM PUBLIC ${${target}_INCLUDE})
    target_compile_options(${target} PRIVATE -w)
  else()
    hvd_bundled_library(${target} ${header} "${sources}" ${package})
  endif()
endfunction()

function(hvd_bundled_library target header archive package)
  if(NOT EXISTS ${HVD_BUNDLE}/${target})
    message(FATAL_ERROR "${header} or ${archive} is missing: run `make deps` (or install Debian's ${package}), or build "
                        "an sdist, which contains the library")
  endif()
  message(STATUS "${target} is compiled from third_party/sources")
  cmake_language(CALL hvd_bundle_${target} ${HVD_BUNDLE}/${target})
  target_compile_options(${target} PRIVATE -w)
endfunction()

# The portable implementations: the engine authenticates connections and nothing else, so their speed is of no account.
function(hvd_bundle_sodium folder)
  set(VERSION 1.0.18)
  set(SODIUM_LIBRARY_VERSION_MAJOR 10)
  set(SODIUM_LIBRARY_VERSION_MINOR 3)
  set(SODIUM_LIBRARY_MINIMAL_DEF "")
  set(generated ${CMAKE_BINARY_DIR}/third_party/sodium)
  configure_file(${folder}/src/libsodium/include/sodium/version.h.in ${generated}/sodium/version.h @ONLY)
  file(GLOB_RECURSE sources ${folder}/src/libsodium/*.c)
  add_library(sodium STATIC ${sources})
  target_include_directories(sodium SYSTEM PUBLIC ${folder}/src/libsodium/include ${folder}/src/libsodium/include/sodium
                                                  ${generated} ${generated}/sodium)
  target_compile_definitions(sodium PRIVATE CONFIGURED=1 NATIVE_LITTLE_ENDIAN=1 HAVE_WEAK_SYMBOLS=1 HAVE_PTHREAD=1
                                            HAVE_GETPID=1)
endfunction()

function(hvd_bundle_xxhash folder)
  add_library(xxhash STATIC ${folder}/xxhash.c)
  target_include_directories(xxhash SYSTEM PUBLIC ${folder})
endfunction()

function(hvd_bundle_uv folder)
  file(GLOB sources ${folder}/src/*.c)
  foreach(name async core dl fs getaddrinfo getnameinfo loop-watcher loop pipe poll process random-devurandom signal
               stream tcp thread tty udp proctitle linux-core linux-inotify linux-syscalls procfs-exepath
               random-getrandom random-sysctl-linux epoll)
    list(APPEND sources ${folder}/src/unix/${name}.c)
  endforeach()
  add_library(uv STATIC ${sources})
  target_include_directories(uv SYSTEM PUBLIC ${folder}/include)
  target_include_directories(uv PRIVATE ${folder}/src)
  target_link_libraries(uv INTERFACE rt ${CMAKE_DL_LIBS})
endfunction()

function(hvd_bundle_yaml folder)
  file(GLOB sources ${folder}/src/*.c)
  add_library(yaml STATIC ${sources})
  target_include_directories(yaml SYSTEM PUBLIC ${folder}/include)
  target_compile_definitions(yaml PRIVATE YAML_VERSION_MAJOR=0 YAML_VERSION_MINOR=2 YAML_VERSION_PATCH=5
                                          YAML_VERSION_STRING="0.2.5" YAML_DECLARE_STATIC)
endfunction()

function(hvd_bundle_llhttp folder)
  file(GLOB sources ${folder}/llhttp/*.c)
  add_library(llhttp STATIC ${sources})
  target_include_directories(llhttp SYSTEM PUBLIC ${folder}/include/llhttp)
endfunction()

hvd_static_library(sodium sodium.h libsodium.a libsodium-dev)
hvd_static_library(xxhash xxhash.h libxxhash.a libxxhash-dev) # for Python's module alone
hvd_static_library(uv uv.h libuv_a.a libuv1-dev)              # for horovodrun alone, like the next ones
hvd_static_library(yaml yaml.h libyaml.a libyaml-dev)
hvd_static_source(llhttp llhttp.h api.c,http.c,llhttp.c node-llhttp)
