//go:build pinned

// Package interop keeps the modules that the programs below use in go.mod, whichever of them is
// built.
package interop

import (
	_ "github.com/google/go-configfs-tsm/report"
	_ "github.com/google/go-sev-guest/verify"
	_ "github.com/google/go-tdx-guest/verify"
)
