package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-tdx-guest/verify"
)

func tdx(files folder, now time.Time) error {
	quote, err := files.read("evidence.bin")
	if err != nil {
		return err
	}
	root, err := files.read("root.der")
	if err != nil {
		return err
	}
	certificate, err := x509.ParseCertificate(root)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	return verify.RawTdxQuote(quote, &verify.Options{
		CheckRevocations: true,
		GetCollateral:    true,
		Getter:           pcs{files},
		Now:              now,
		TrustedRoots:     roots,
	})
}

// pcs answers as Intel's service does: issuer chains stand in headers, escaped as in a URL.
type pcs struct{ files folder }

func (p pcs) Get(address string) (map[string][]string, []byte, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case strings.HasSuffix(parsed.Path, "/tdx/certification/v4/tcb"):
		return p.answer("tcb.json", "TCB-Info-Issuer-Chain", "tcb-signing.pem")
	case strings.HasSuffix(parsed.Path, "/tdx/certification/v4/qe/identity"):
		return p.answer("qe-identity.json", "SGX-Enclave-Identity-Issuer-Chain", "tcb-signing.pem")
	case strings.HasSuffix(parsed.Path, "/sgx/certification/v4/pckcrl"):
		ca := parsed.Query().Get("ca")
		return p.answer("pck-crl-"+ca+".der", "SGX-PCK-CRL-Issuer-Chain", "pck-issuers-"+ca+".pem")
	case strings.HasSuffix(parsed.Path, "/root.crl"):
		body, err := p.files.read("root-crl.der")
		return nil, body, err
	}
	return nil, nil, errors.New("nobody answers " + address)
}

func (p pcs) answer(body, header, chain string) (map[string][]string, []byte, error) {
	bytes, err := p.files.read(body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", body, err)
	}
	issuers, err := p.files.read(chain)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", chain, err)
	}
	escaped := url.QueryEscape(string(issuers))
	// Go's canonical form of the header's name is the one that the library looks up.
	return map[string][]string{canonical(header): {escaped}}, bytes, nil
}
