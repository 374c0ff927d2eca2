# SPDX-License-Identifier: MIT
# The front door. It knows nothing: meson builds user space, tests/run.py counts tests, tests/need.sh finds packages.

B ?= build
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
USERS ?= $(if $(filter 0,$(shell id -u)),root nobody,$(shell id -un))
ENGINES ?= uring threads

.PHONY: all demo check check-users check-long vm-images check-vm bench fuzz coverage install docs style clean need modules modules_install modules_device modules_clean modules_uninstall dkms

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

# The unit programs and the command under ASan+UBSan, as each user (root alone may be another) on each engine.
check-users: all
	@sh tests/asan.sh $(B)-asan
	@status=0; \
	for user in $(USERS); do for engine in $(ENGINES); do \
		echo "$$user, $$engine:"; \
		python3 tests/run.py $(B) $(B)-asan --asan-only --user "$$user" --engine "$$engine" || status=1; \
	done; done; \
	exit $$status

# The parsers, the hand-over and the counter file under libFuzzer, FUZZ_SECONDS each.
fuzz: need
	@sh tests/need.sh fuzz
	@bash tests/fuzz/run.sh $(B)-fuzz $(FUZZ_SECONDS) $(FUZZ_TARGET)

# The kernels that the module is tried in, into the cache. VM="6.1 6.12 um debug" takes the debug kernel too.
vm-images:
	@sh tests/vm/images.sh $(VM)

# The module in virtual machines: every tier whose image is there, then the library's tests on it. VM_ARGS="--tier um --boot plain" runs
# less, SUITE_ARGS="--tests buffer" less of the second.
check-vm: all
	@sh tests/need.sh vm
	@status=0; \
	$(if $(VM_ARGS)$(SUITE_ARGS),true,python3 tests/vm/each.py $(B) --build $(B)/vm) || status=1; \
	$(if $(VM_ARGS),python3 tests/vm/run.py --build $(B)/vm $(VM_ARGS),true) || status=1; \
	$(if $(SUITE_ARGS),python3 tests/vm/suite.py $(B) --build $(B)/vm $(SUITE_ARGS),true) || status=1; \
	exit $$status

# Which lines of the library the tests run, against tests/uncovered.
coverage: need
	@python3 tests/coverage.py $(B)-cov

check-long: check
	@$(MAKE) --no-print-directory check-users
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600
	@$(MAKE) --no-print-directory vm-images VM="6.1 6.12 um debug kcsan"
	@$(MAKE) --no-print-directory check-vm VM_ARGS="--long"
	@sh tests/need.sh vm
	@python3 tests/vm/suite.py $(B) --build $(B)/vm --long
	@python3 tests/vm/installed.py $(B) --build $(B)/vm

bench: all
	@$(B)/tests/bench/pinion-bench

install: all
	@DESTDIR=$(DESTDIR) meson install -C $(B) --no-rebuild

docs: all

style:
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run

clean:
	@rm -rf $(B) $(B)-asan $(B)-fuzz $(B)-cov

# The kernel module: pinion.ko in $(B)/kmod for the running kernel, for KVER=RELEASE, or for the headers in KDIR=FOLDER. KARGS= goes to make.
MODULES = B='$(B)' KDIR='$(KDIR)' KVER='$(KVER)' KARGS='$(KARGS)' DESTDIR='$(DESTDIR)' sh tools/modules.sh

modules:
	@$(MODULES) build

# As root: what `make modules` built, with udev rule, group and load-at-boot file.
modules_install:
	@$(MODULES) install

modules_device:
	@$(MODULES) device

modules_clean:
	@$(MODULES) clean

# As root: the sources to DKMS, which builds them for this kernel and for each that is installed later.
dkms:
	@$(MODULES) dkms

# As root: takes away what modules_install, modules_device and dkms brought.
modules_uninstall:
	@$(MODULES) uninstall
