# SPDX-License-Identifier: MIT
# The front door. It knows nothing: meson builds user space, tests/run.py counts tests, tests/need.sh finds packages.

B ?= build
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60

.PHONY: all demo check check-long bench fuzz install docs style clean need

all: need $(B)/build.ninja
	@ninja -C $(B)

need:
	@sh tests/need.sh build

$(B)/build.ninja:
	@meson setup $(B) --prefix $(PREFIX) --werror

# The main job on real input: load once, share, count, kill. MODEL=FILE takes your own model.
demo: all
	@bash tests/demo/run.sh $(B)

# Every test that needs no kernel module and no GPU, plain and under ASan+UBSan.
check: all
	@sh tests/asan.sh $(B)-asan
	@python3 tests/run.py $(B) $(B)-asan

# The parsers under libFuzzer, FUZZ_SECONDS each.
fuzz:
	@sh tests/need.sh fuzz
	@bash tests/fuzz/run.sh $(B)-fuzz $(FUZZ_SECONDS) $(FUZZ_TARGET)

check-long: check
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600

bench: all
	@$(B)/tests/bench/pinion-bench

install: all
	@DESTDIR=$(DESTDIR) meson install -C $(B) --no-rebuild

docs: all

style:
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run

clean:
	@rm -rf $(B) $(B)-asan $(B)-fuzz
