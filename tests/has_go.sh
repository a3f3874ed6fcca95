#!/usr/bin/env bash
# Whether this machine has a Go that can build go/: status 0, or 1 and the reason.
PATH=$PATH:/usr/local/go/bin
go_min=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' "$(dirname "$0")/../go/go.mod")
version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed 's/^go//')
if [ -z "$version" ] || [ "$(printf '%s\n' "$go_min" "$version" | sort -V | head -1)" != "$go_min" ]; then
  echo "no Go $go_min or later, got ${version:-none}"
  exit 1
fi
