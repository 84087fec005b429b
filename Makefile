# SPDX-License-Identifier: Apache-2.0
# The front door. Meson does the work below it; all programs land in build/bin/.
#
#   make          build everything                 make demo    the main job on a simulated host
#   make check    all tests, with the counts       make bench   speed, as ratios
#   make demo-kube  the Kubernetes device plugin, with a fake kubelet; make bench-kube: its speed and size
#   make lint     format and analyzers             make fuzz    20 s of each fuzz target (FUZZ_SECONDS=)
#   make demo-wedge  a VF wedges, is noticed and leaves, its card is brought back
#   make screenshots  the web page's pictures in docs/images
#   make docs     the parts of docs/ that are made from others
#   make soak     kill -9 at random, 1,000 rounds  make install DESTDIR= PREFIX=, make uninstall
#   make deb      Debian packages, into build/deb/

BUILD ?= build
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 20
SOAK_ROUNDS ?= 1000
PYTHON ?= /usr/bin/python3
# Some machines set CC to something else; gcc is the first compiler here, clang the second.
ifeq ($(origin CC),default)
CC := gcc
endif
export CC

.PHONY: build screenshots demo demo-kube demo-wedge docs check bench bench-kube soak fuzz lint format install uninstall \
	deb clean deps
build: deps $(BUILD)/build.ninja
	@ninja -C $(BUILD)

deps:
	@tools/install-deps.sh

$(BUILD)/build.ninja:
	@meson setup --prefix $(PREFIX) $(BUILD) >/dev/null

demo: build
	@tools/demo.sh $(BUILD)/bin

demo-kube: build
	@$(PYTHON) tools/demo-kube.py $(BUILD)/bin

demo-wedge: build
	@tools/demo-wedge.sh $(BUILD)/bin

# Without the guest's packages one test is skipped, without the browser those of the web page, without
# those for packaging a few; they say so.
check: deps
	-@tools/install-deps.sh tools/packages-guest.txt
	-@tools/install-deps.sh tools/packages-page.txt
	-@tools/install-deps.sh tools/packages-deb.txt
	@$(PYTHON) tests/check.py

screenshots: build
	@tools/install-deps.sh tools/packages-page.txt
	@$(PYTHON) tests/e2e/screenshots.py docs/images

bench: build
	@$(PYTHON) bench/run.py --build $(BUILD) --out $(BUILD)/bench/bench.json

bench-kube: build
	@$(PYTHON) bench/kube.py --build $(BUILD)

soak: build
	@$(PYTHON) tests/soak/soak.py --build $(BUILD) --rounds $(SOAK_ROUNDS)

fuzz: deps
	@$(PYTHON) tests/check.py --fuzz $(FUZZ_SECONDS)

lint: build
	@$(PYTHON) tests/lint.py --build $(BUILD)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

docs:
	@$(PYTHON) tools/rest-reference.py

install: build
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir "$$(realpath -m '$(DESTDIR)')")

# What the last "make install" of this build folder put there.
uninstall:
	@ninja -C $(BUILD) uninstall

deb: deps
	@tools/install-deps.sh tools/packages-deb.txt
	@tools/make-deb.sh $(BUILD)/deb

clean:
	rm -rf build build-*
