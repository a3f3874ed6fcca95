// Command tsm gets one report through Google's configfs-tsm library and prints it as JSON.
//
// The library looks below /sys/kernel/config/tsm and nowhere else. -root DIR leads the very same
// calls to another tree, by way of the library's own interface for clients; without it the
// library's Linux client is used.
package main

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-configfs-tsm/configfs/configfsi"
	"github.com/google/go-configfs-tsm/configfs/linuxtsm"
	"github.com/google/go-configfs-tsm/report"
	"github.com/google/go-sev-guest/abi"
)

func main() {
	root := flag.String("root", "", "another tree than "+configfsi.TsmPrefix)
	data := flag.String("report-data", strings.Repeat("00", 64), "what is signed, in hexadecimal")
	aux := flag.Bool("aux", false, "read the certificate table of an SNP host too")
	flag.Parse()
	if err := run(*root, *data, *aux); err != nil {
		fmt.Fprintln(os.Stderr, "tsm:", err)
		os.Exit(1)
	}
}

func run(root, data string, aux bool) error {
	inblob, err := hex.DecodeString(data)
	if err != nil {
		return fmt.Errorf("-report-data: %w", err)
	}
	client, err := client(root)
	if err != nil {
		return err
	}
	response, err := report.Get(client, &report.Request{InBlob: inblob, GetAuxBlob: aux})
	if err != nil {
		return err
	}
	printed := map[string]string{
		"provider": strings.TrimSpace(response.Provider),
		"outblob":  hex.EncodeToString(response.OutBlob),
	}
	if aux {
		var table abi.CertTable
		if err := table.Unmarshal(response.AuxBlob); err != nil {
			return err
		}
		chain := table.Proto()
		printed["vcek"] = hex.EncodeToString(chain.VcekCert)
		printed["ask"] = hex.EncodeToString(chain.AskCert)
		printed["ark"] = hex.EncodeToString(chain.ArkCert)
	}
	return json.NewEncoder(os.Stdout).Encode(printed)
}

func client(root string) (configfsi.Client, error) {
	if root == "" {
		return linuxtsm.MakeClient()
	}
	return elsewhere{root}, nil
}

// elsewhere does what the library's Linux client does, below another folder.
type elsewhere struct{ root string }

func (e elsewhere) path(name string) string {
	return filepath.Join(e.root, strings.TrimPrefix(name, configfsi.TsmPrefix))
}

func (e elsewhere) MkdirTemp(dir, pattern string) (string, error) {
	made, err := os.MkdirTemp(e.path(dir), pattern)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(made)), nil
}

func (e elsewhere) ReadFile(name string) ([]byte, error) { return os.ReadFile(e.path(name)) }

func (e elsewhere) WriteFile(name string, contents []byte) error {
	return os.WriteFile(e.path(name), contents, 0o220)
}

func (e elsewhere) RemoveAll(name string) error { return os.Remove(e.path(name)) }

func (e elsewhere) ReadDir(name string) ([]os.DirEntry, error) { return os.ReadDir(e.path(name)) }
