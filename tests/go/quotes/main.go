// Command quotes puts evidence before Google's Go verifiers, with every check that their options
// turn on. It fetches nothing: all that they ask for is read from files.
//
//	quotes tdx DIR UNIX          go-tdx-guest: TCB, QE identity, revocation
//	quotes snp DIR UNIX PRODUCT  go-sev-guest: chain, revocation, signature
//
// Status 0: accepted; 1: refused; 2: the question was not understood.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: quotes tdx|snp DIR UNIX [PRODUCT]")
		os.Exit(2)
	}
	seconds, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quotes: time:", err)
		os.Exit(2)
	}
	folder, now := folder(os.Args[2]), time.Unix(seconds, 0)
	switch {
	case os.Args[1] == "tdx":
		err = tdx(folder, now)
	case os.Args[1] == "snp" && len(os.Args) == 5:
		err = snp(folder, now, os.Args[4])
	default:
		fmt.Fprintln(os.Stderr, "quotes: wanted tdx, or snp and a product")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "refused:", err)
		os.Exit(1)
	}
	fmt.Println("accepted")
}

// folder holds the evidence and what services would answer.
type folder string

func (f folder) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), name))
}
