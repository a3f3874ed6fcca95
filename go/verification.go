package confide

import (
	"context"
	"encoding/json"
	"fmt"
)

// Verification is what was verified, with the members of `confide connect`'s ready line.
type Verification struct {
	// Endpoint is the address of the attested server; empty for evidence alone.
	Endpoint string `json:"endpoint,omitempty"`
	// Guarantee is who is protected from whom, computed from what was checked.
	Guarantee string `json:"guarantee"`
	// Simulated says whether the root says of itself that it is simulated.
	Simulated bool `json:"simulated"`
	// Scope is `workload` or `platform`: whether the policy names the program too.
	Scope string `json:"scope"`
	// Root is the root that the evidence leads to.
	Root json.RawMessage `json:"root"`
	// TCBStatus is empty where the kind of evidence has none.
	TCBStatus string `json:"tcb_status"`
	// Advisories are the vendor's, for the machine's TCB.
	Advisories []string `json:"advisories"`
	// ConfigDigest is the digest of the server's configuration.
	ConfigDigest string `json:"config_digest"`
	// Weights are the measured weights, if the server has measured any.
	Weights json.RawMessage `json:"weights"`
	// ClaimedGuarantee is what the server says of itself.
	ClaimedGuarantee string `json:"claimed_guarantee"`
	// NotAfter is the Unix second after which the claims or endorsements have expired.
	NotAfter int64 `json:"not_after"`
	// PubkeyHash is the SHA-256 of the TLS key that the claims name, in hexadecimal.
	PubkeyHash string `json:"pubkey_hash,omitempty"`
	// Checks are all checks with their outcomes.
	Checks []Check `json:"checks"`
}

// Check is one check of an appraisal.
type Check struct {
	Name string `json:"name"`
	// Outcome is `passed`, `failed` or `not_evaluated`, which is no pass.
	Outcome string `json:"outcome"`
}

// AttestationError says that evidence was judged and not accepted. Nothing was sent to the server.
type AttestationError struct {
	// Server is the address of the server; `evidence` for evidence alone.
	Server string
	// Check is the name of the check that failed, as policies name it.
	Check string
	// Message says what was wanted and what came.
	Message string
	// Hint says what to do.
	Hint string
	// Verification holds every check with its outcome as JSON, if checks ran.
	Verification json.RawMessage
}

func (e *AttestationError) Error() string {
	return fmt.Sprintf("%s is not accepted: %s\nhint: %s", e.Server, e.Message, e.Hint)
}

// UsageError says that a policy, an option or an address cannot be used.
type UsageError struct {
	Message string
}

func (e *UsageError) Error() string { return e.Message }

// Evidence is a quote of SGX or TDX, or a report of SEV-SNP, that came by any way.
type Evidence struct {
	// Bytes are the quote or the report.
	Bytes []byte
	// Collateral is JSON: a QuoteCollateralV3, or all endorsements of an SEV-SNP report.
	Collateral []byte
	// ReportData are the 64 bytes that the evidence has to hold; nil leaves them unchecked.
	ReportData []byte
}

// VerifyEvidence judges evidence by a policy in TOML, as `confide verify quote` and `confide verify snp` do. The error is
// an *AttestationError if the evidence is not accepted, and a *UsageError if the policy cannot be read.
func VerifyEvidence(ctx context.Context, policy string, evidence Evidence) (*Verification, error) {
	module, err := loadVerifier()
	if err != nil {
		return nil, err
	}
	var verified Verification
	fields := [][]byte{[]byte(policy), evidence.Collateral, evidence.Bytes, evidence.ReportData}
	if err := module.call(ctx, "evidence", "appraise_evidence", &verified, fields...); err != nil {
		return nil, err
	}
	return &verified, nil
}
