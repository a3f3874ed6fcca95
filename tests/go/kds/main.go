// Command kds verifies an SEV-SNP report with Google's go-sev-guest, whose own getter fetches the
// VCEK, the certificates above it and the revocation list.
//
// The library asks AMD's host and no other. -base URL leads the very same requests to another
// service with AMD's routes; -root FILE is the ARK (DER) that the fetched chain must end in.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/go-sev-guest/abi"
	"github.com/google/go-sev-guest/kds"
	"github.com/google/go-sev-guest/verify"
	"github.com/google/go-sev-guest/verify/trust"
)

const amd = "https://kdsintf.amd.com"

// simulated is the host in the simulated certificates, which name where their list lies.
const simulated = "https://simulated.invalid"

func main() {
	base := flag.String("base", "", "the service that is asked instead of "+amd)
	report := flag.String("report", "", "the report, 1184 bytes")
	root := flag.String("root", "", "the ARK, DER")
	product := flag.String("product", "Milan", "AMD's product line")
	at := flag.Int64("at", 0, "the time of the verification, unix seconds")
	flag.Parse()
	if err := run(*base, *report, *root, *product, time.Unix(*at, 0)); err != nil {
		fmt.Fprintln(os.Stderr, "kds:", err)
		os.Exit(1)
	}
	fmt.Println("accepted")
}

func run(base, reportFile, rootFile, product string, at time.Time) error {
	report, err := os.ReadFile(reportFile)
	if err != nil {
		return err
	}
	getter := &elsewhere{base: base, getter: &trust.SimpleHTTPSGetter{}}
	pinned, err := pinnedRoot(getter, rootFile, product)
	if err != nil {
		return err
	}
	options := &verify.Options{
		CheckRevocations: true,
		Getter:           getter,
		Now:              at,
		TrustedRoots:     map[string][]*trust.AMDRootCerts{product: {pinned}},
	}
	if err := verify.RawSnpReport(report, options); err != nil {
		return err
	}
	// Chain, VCEK and list: fewer mean that something was taken from the library itself.
	if getter.answered < 3 {
		return fmt.Errorf("wanted three documents from %s, got %d", base, getter.answered)
	}
	return nil
}

// pinnedRoot fetches the chain and refuses it unless it ends in the given root.
func pinnedRoot(getter trust.HTTPSGetter, rootFile, product string) (*trust.AMDRootCerts, error) {
	root, err := os.ReadFile(rootFile)
	if err != nil {
		return nil, err
	}
	chain, err := getter.Get(kds.ProductCertChainURL(abi.VcekReportSigner, product))
	if err != nil {
		return nil, err
	}
	certs := trust.AMDRootCertsProduct(product)
	if err := certs.FromKDSCertBytes(chain); err != nil {
		return nil, err
	}
	if !bytes.Equal(certs.ProductCerts.Ark.Raw, root) {
		return nil, errors.New("the fetched chain ends in another root")
	}
	return certs, nil
}

// elsewhere asks another host for AMD's paths, through the library's own client.
type elsewhere struct {
	base     string
	getter   *trust.SimpleHTTPSGetter
	answered int
}

func (e *elsewhere) Get(url string) ([]byte, error) {
	return e.GetContext(context.Background(), url)
}

func (e *elsewhere) GetContext(ctx context.Context, url string) ([]byte, error) {
	path, ok := strings.CutPrefix(url, amd)
	if !ok {
		path, ok = strings.CutPrefix(url, simulated)
	}
	if !ok {
		return nil, fmt.Errorf("wanted a URL of %s, got %s", amd, url)
	}
	body, err := e.getter.GetContext(ctx, e.base+path)
	if err == nil {
		e.answered++
	}
	return body, err
}
