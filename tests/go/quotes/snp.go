package main

import (
	"errors"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-sev-guest/abi"
	"github.com/google/go-sev-guest/kds"
	spb "github.com/google/go-sev-guest/proto/sevsnp"
	"github.com/google/go-sev-guest/verify"
	"github.com/google/go-sev-guest/verify/trust"
)

func snp(files folder, now time.Time, product string) error {
	raw, err := files.read("evidence.bin")
	if err != nil {
		return err
	}
	report, err := abi.ReportToProto(raw)
	if err != nil {
		return err
	}
	line, err := kds.ParseProductLine(product)
	if err != nil {
		return err
	}
	options, err := snpOptions(files, now, product)
	if err != nil {
		return err
	}
	options.Product = line
	signer, err := abi.ParseSignerInfo(report.SignerInfo)
	if err != nil {
		return err
	}
	if signer.SigningKey == abi.VcekReportSigner {
		// The library fetches the certificates itself.
		return verify.RawSnpReport(raw, options)
	}
	vlek, err := files.read("endorsement-key.der")
	if err != nil {
		return err
	}
	return verify.SnpAttestation(&spb.Attestation{
		Report:           report,
		Product:          line,
		CertificateChain: &spb.CertificateChain{VlekCert: vlek},
	}, options)
}

func snpOptions(files folder, now time.Time, product string) (*verify.Options, error) {
	root := trust.AMDRootCertsProduct(product)
	root.ProductCerts = &trust.ProductCerts{}
	for _, name := range []string{"vcek-chain.pem", "vlek-chain.pem"} {
		chain, err := files.read(name)
		if err != nil {
			return nil, err
		}
		if err := root.ProductCerts.FromKDSCertBytes(chain); err != nil {
			return nil, err
		}
	}
	return &verify.Options{
		CheckRevocations: true,
		Getter:           distribution{files},
		Now:              now,
		TrustedRoots:     map[string][]*trust.AMDRootCerts{product: {root}},
	}, nil
}

// distribution answers as AMD's Key Distribution Service does.
type distribution struct{ files folder }

func (d distribution) Get(address string) ([]byte, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(parsed.Path, "/vlek/") && strings.HasSuffix(parsed.Path, "/cert_chain"):
		return d.files.read("vlek-chain.pem")
	case strings.HasSuffix(parsed.Path, "/cert_chain"):
		return d.files.read("vcek-chain.pem")
	case strings.HasSuffix(parsed.Path, "/crl"):
		return d.files.read("crl.der")
	case strings.HasPrefix(parsed.Path, "/vcek/v1/"):
		return d.files.read("endorsement-key.der")
	}
	return nil, errors.New("nobody answers " + address)
}

// canonical is how net/http writes a header's name.
func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }
