# `make demo` and `make test` do all set-up on a fresh Debian 12, as root or with sudo, and change nothing when
# everything is there. Only Rust itself is installed here; the rest of the set-up is `cargo xtask setup`.

SHELL := /bin/bash
.DEFAULT_GOAL := help

SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# The oldest Rust that builds this, as 1.N.
RUST_MINOR := $(shell sed -n 's/^rust-version = "1\.\([0-9]*\).*/\1/p' Cargo.toml)
# Debian's own `rustc` is too old; the packages that it keeps current for its browsers are not.
RUST_PACKAGES := rustc-web cargo-web rustfmt-web rust-web-clippy
BUILD_PACKAGES := gcc libc6-dev pkg-config ca-certificates

# Puts the first toolchain that is recent enough in front of PATH; fails if there is none.
define use_rust
use_rust() { \
    local folder minor; \
    for folder in $$(type -ap cargo | sed 's|/cargo$$||') "$$HOME/.cargo/bin" /usr/bin; do \
        [ -x "$$folder/cargo" ] || continue; \
        minor=$$(PATH="$$folder:$$PATH" rustc --version 2>/dev/null | sed -n 's/^rustc 1\.\([0-9]*\).*/\1/p'); \
        if [ "$${minor:-0}" -ge $(RUST_MINOR) ] && PATH="$$folder:$$PATH" cargo --version >/dev/null 2>&1; then \
            PATH="$$folder:$$PATH"; return 0; \
        fi; \
    done; \
    return 1; \
}
endef

PREFIX ?= /usr/local

.PHONY: help demo test compat install setup rust

help:
	@echo 'make demo   build DistCache and watch it balance a skewed load (ARGS="--seconds 60" and so on)'
	@echo 'make test   install what the tests need, build, and run everything that CI runs'
	@echo 'make compat run the test suite of redis through DistCache and tell the difference (ARGS="unit/multi")'
	@echo 'make install build the binary, its man pages and completions and put them into PREFIX ($(PREFIX))'
	@echo 'make setup  only install what the tests need'

demo: rust
	@$(use_rust); use_rust && cargo build --release --locked --package distcache
	@"$${CARGO_TARGET_DIR:-target}/release/distcache" demo $(ARGS)

test: setup
	@$(use_rust); use_rust && cargo run --locked --package xtask -- ci

compat: setup
	@$(use_rust); use_rust && cargo run --locked --package xtask -- compat $(ARGS)

install: rust
	@$(use_rust); use_rust && cargo run --locked --package xtask -- dist
	@[ -w "$(PREFIX)" ] && as= || as="$(SUDO)"; $$as cp -R "$${CARGO_TARGET_DIR:-target}/dist/." "$(PREFIX)/"

setup: rust
	@$(use_rust); use_rust && cargo run --locked --package xtask -- setup

rust:
	@$(use_rust); \
	packages=; \
	use_rust || packages="$(RUST_PACKAGES) $(BUILD_PACKAGES)"; \
	command -v cc >/dev/null || packages="$${packages:-$(BUILD_PACKAGES)}"; \
	[ -z "$$packages" ] && exit 0; \
	command -v apt-get >/dev/null || \
	    { echo "no apt-get here; install Rust 1.$(RUST_MINOR) or newer and a C compiler by hand" >&2; exit 1; }; \
	echo "setup: installing $$packages"; \
	$(SUDO) apt-get update -q && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 $$packages && \
	{ use_rust || { echo "there is still no Rust 1.$(RUST_MINOR) or newer; is Debian's security archive enabled?" >&2; exit 1; }; }
