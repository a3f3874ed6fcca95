// Package confide opens TLS connections to programs in confidential VMs and verifies, before anything is sent, which
// program holds the key of the connection.
//
//	client, err := confide.NewClient(confide.Options{Policy: string(policy)})
//	if err != nil { … }
//	answer, err := client.HTTPClient().Post("https://model.example:8443/v1/chat/completions", "application/json", body)
//
// TLS is Go's own. The evidence is judged by confide's verifier, the same code as in the other clients, compiled to
// WebAssembly and run by wazero without cgo. docs/go.md of the repository describes options, errors and limits.
package confide
