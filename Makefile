# One command each, on a machine with Python 3.11 or newer; .venv is made if it is missing.
PYTHON ?= python3
BIN := .venv/bin
TORCH = torch==2.13.0

.PHONY: train test test-slow test-avx2 test-avx512 lint check audit lock docs notebooks reference pictures format mechanisms reproduction speedrun peers tensorboard demo web setup dev clean

train: setup            ## the main job: train on the built-in corpus and score its test set
	$(BIN)/python scripts/train.py $(ARGS)

test: dev               ## the test suite, without its slow tier
	$(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: dev          ## the slow tier: whole processes, several ranks, a stand-in for a device
	$(BIN)/python -m pytest -n 2 -m slow $(ARGS)

# The numerical tests as older CPUs run them: oneDNN, ATen and MKL each obey a variable of their own.
BY_PROCESSOR = tests/test_int8.py tests/test_bfloat16.py tests/test_packed.py
NUMERICAL = $(BY_PROCESSOR) tests/test_attention.py tests/test_decoding.py tests/test_dropout.py tests/test_recurrent.py \
	tests/test_kernels.py tests/test_losses.py tests/test_masks.py tests/test_transformer.py tests/test_translators.py
test-avx2: export ONEDNN_MAX_CPU_ISA = AVX2
test-avx2: export ATEN_CPU_CAPABILITY = avx2
test-avx2: export MKL_ENABLE_INSTRUCTIONS = AVX2
test-avx2: dev          ## the numerical tests as a CPU with AVX2 alone runs them
	$(BIN)/python -m pytest -n 2 -m "not slow" $(NUMERICAL) $(ARGS)

test-avx512: export ONEDNN_MAX_CPU_ISA = AVX512_CORE
test-avx512: dev        ## those that depend on it as a CPU with AVX-512, without VNNI or BF16, runs them
	$(BIN)/python -m pytest -n 2 -m "not slow" $(BY_PROCESSOR) $(ARGS)

lint: dev               ## format, lint, types, imports, dependencies; with Node.js the page's scripts too
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	if command -v npx > /dev/null; then npx --yes @biomejs/biome@2.6.8 check --error-on-warnings; fi

check: lint             ## all that CI checks, but for the other processors
	$(BIN)/python -m pytest -n 2

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-package torch --no-emit-package pip --custom-compile-command "make lock"

# --strict: a package that the index does not know ends it too, as nothing was looked up then.
audit: dev              ## list the installed packages in sbom.json (CycloneDX), and fail if one has a known vulnerability
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file sbom.json .venv
	(grep -o '^[a-z][^\\]*' requirements.lock; echo '$(TORCH)') > .venv/pinned.txt
	$(BIN)/pip-audit --strict --disable-pip --no-deps --progress-spinner off --requirement .venv/pinned.txt

lock: dev               ## write both lock files again, with the newest versions that pyproject.toml allows
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) --upgrade --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --output-file requirements-core.lock pyproject.toml

docs: dev               ## the documentation as pages to read offline, in docs/_build/html; warnings are errors
	$(BIN)/python docs/generate.py --check
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

notebooks: dev          ## run the chapters of Learn and keep their results: ARGS=01_bottleneck runs one (all: minutes)
	OMP_NUM_THREADS=1 $(BIN)/python docs/execute.py $(ARGS)

reference: dev          ## write the generated pages of docs/ again, and the tables of results
	$(BIN)/python docs/generate.py

pictures: dev           ## make the pictures of README and docs again: make pictures RUN=RUN_DIR DOCUMENTS=RUN_DIR
	$(BIN)/python docs/draw.py $(RUN) $(DOCUMENTS)

format: dev             ## let ruff fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

mechanisms: setup       ## train every mechanism on the built-in corpus, print them as one table
	$(BIN)/python scripts/train.py -m 'attention=glob(*,exclude=[hierarchical,sentences])' log_dir=logs/mechanisms $(ARGS)
	$(BIN)/python scripts/train.py attention=bahdanau wiring=update_then_attend log_dir=logs/mechanisms $(ARGS)
	$(BIN)/python scripts/train.py model=gru_layer_norm log_dir=logs/mechanisms $(ARGS)
	$(BIN)/python scripts/train.py model=transformer model.size=192 encoder.feedforward_size=512 decoder.feedforward_size=512 log_dir=logs/mechanisms $(ARGS)
	$(BIN)/python scripts/compare.py runs='logs/mechanisms/*/*' output=logs/mechanisms_comparison

# Three seeds of each: the wiring held fixed, as published, with input feeding, the bottleneck, large dot products.
SEEDS = seed=1,2,3 trainer.max_epochs=3 log_dir=logs/reproduction
reproduction: setup      ## the comparison with the papers in docs/results on the built-in corpus, as one table (hours)
	$(BIN)/python scripts/train.py -m attention=luong_dot,luong_general,luong_concat,scaled_dot,bahdanau wiring=update_then_attend $(SEEDS) $(ARGS)
	$(BIN)/python scripts/train.py -m attention=bahdanau,local_m,local_p,none $(SEEDS) $(ARGS)
	$(BIN)/python scripts/train.py -m attention=luong_dot,luong_general wiring.input_feeding=true $(SEEDS) $(ARGS)
	$(BIN)/python scripts/train.py -m attention=luong_dot,scaled_dot encoder.size=512 decoder.size=512 $(SEEDS) $(ARGS)
	$(BIN)/python scripts/compare.py runs='logs/reproduction/*/*' output=logs/reproduction_comparison

speedrun: setup         ## Multi30k to 36.0 BLEU beside a plain PyTorch loop, five rounds; ARGS=data.path=DIR reads a local copy
	$(BIN)/python scripts/workbench/speedrun.py data=multi30k --output logs/speedrun.json $(ARGS)

peers: dev              ## other toolkits on the same batches (pip installs each in .peers/): make peers ARGS="--output FILE.json"
	$(BIN)/python scripts/workbench/peers/toolkits.py data=multi30k $(ARGS)

demo: dev               ## play with the newest finished run in a browser: http://localhost:7860
	$(BIN)/python scripts/demo.py $(ARGS)

# Small models, so that a browser soon has them all.
web: dev                ## a page of four small models for any file server, in docs/site/page: make web ARGS=runtime=FOLDER
	rm -rf logs/web docs/site
	for name in none bahdanau luong_general; do \
		$(BIN)/python scripts/train.py attention=$$name model.size=96 run_dir=logs/web/$$name || exit 1; done
	$(BIN)/python scripts/train.py model=transformer model.size=96 encoder.feedforward_size=192 decoder.feedforward_size=192 \
		run_dir=logs/web/transformer
	$(BIN)/python scripts/export.py 'run=[logs/web/none,logs/web/bahdanau,logs/web/luong_general,logs/web/transformer]' \
		format=web output=docs/site/page $(ARGS)

tensorboard: setup      ## watch the runs on http://localhost:6006
	$(BIN)/tensorboard --logdir logs --samples_per_plugin images=200

setup: .venv/.core      ## what the main job needs, in .venv
dev: .venv/.dev         ## besides, all extras and what tests, documentation and checks need

# torch is installed by itself, unhashed: its builds (GPU, CPU, each system) come from several indexes.
.venv/.core: pyproject.toml requirements-core.lock
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-core.lock
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/.dev: .venv/.core requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements.lock
	touch $@

clean:                  ## remove the environment and caches, never logs
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .mypy_cache data/cache
