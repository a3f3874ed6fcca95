package confide

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options of a client. Only the policy has to be given.
type Options struct {
	// Policy is the policy in TOML (docs/policy.md).
	Policy string
	// Collateral is JSON, used instead of what servers staple.
	Collateral []byte
	// Binding is how servers bind their evidence: `key` or `session`. By default `session` if the policy demands it,
	// else `key`.
	Binding string
	// SessionVersion is the one version of session binding to offer, 1 to 3, which implies it. By default all are
	// offered, and the server chooses.
	SessionVersion int
	// Tunnel is the `confide tunnel` through which servers are reached, ws://HOST:PORT[/PATH] or wss://HOST[:PORT][/PATH].
	// It carries TLS records and cannot read them. No proxy is used then.
	Tunnel string
	// DialContext opens the byte stream to a server, to a tunnel or to a proxy: by default a TCP connection.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout is the limit for opening it, through a tunnel or a proxy too: by default 5 s.
	DialTimeout time.Duration
	// ChannelTimeout is the limit for handshake, evidence and appraisal together: by default 10 s.
	ChannelTimeout time.Duration
	// EvidenceAge is the age of evidence from which on a connection takes no further request: by default 15 min.
	EvidenceAge time.Duration
	// Proxy returns the proxy for an address, as http.ProxyFromEnvironment does, which is the default. A proxy carries
	// TLS records and cannot read them.
	Proxy ProxyFunc
}

// Client opens attested connections. All methods may be called from several goroutines at once.
type Client struct {
	options  Options
	tunnel   *url.URL
	verifier *verifier
	mutex    sync.Mutex
	// first holds the first accepted verdict of each address, as the verifier gave it.
	first map[string]json.RawMessage
}

// NewClient reads the policy and compiles the verifier, which takes about a second the first time in a process. The
// error is a *UsageError if an option cannot be used.
func NewClient(options Options) (*Client, error) {
	module, err := loadVerifier()
	if err != nil {
		return nil, err
	}
	var read struct{ Binding string }
	if err := module.call(context.Background(), "policy", "read_policy", &read, []byte(options.Policy)); err != nil {
		return nil, err
	}
	if options.SessionVersion < 0 || options.SessionVersion > 3 {
		return nil, &UsageError{fmt.Sprintf("SessionVersion is %d, wanted 1, 2 or 3", options.SessionVersion)}
	}
	if options.SessionVersion != 0 && options.Binding == "key" {
		return nil, &UsageError{"SessionVersion needs the binding session, got key"}
	}
	switch options.Binding {
	case "key", "session":
	case "":
		options.Binding = read.Binding
		if options.SessionVersion != 0 {
			options.Binding = "session"
		}
	default:
		return nil, &UsageError{fmt.Sprintf("binding is %q, wanted key or session", options.Binding)}
	}
	for name, limit := range map[string]*time.Duration{
		"DialTimeout": &options.DialTimeout, "ChannelTimeout": &options.ChannelTimeout, "EvidenceAge": &options.EvidenceAge,
	} {
		if *limit < 0 {
			return nil, &UsageError{fmt.Sprintf("%s is %s, wanted more than 0", name, *limit)}
		}
	}
	setDefault(&options.DialTimeout, 5*time.Second)
	setDefault(&options.ChannelTimeout, 10*time.Second)
	setDefault(&options.EvidenceAge, 15*time.Minute)
	if options.DialContext == nil {
		options.DialContext = (&net.Dialer{}).DialContext
	}
	if options.Proxy == nil {
		options.Proxy = proxyFromEnvironment
	}
	client := &Client{options: options, verifier: module, first: map[string]json.RawMessage{}}
	if options.Tunnel != "" {
		if client.tunnel, err = parseTunnel(options.Tunnel); err != nil {
			return nil, err
		}
	}
	return client, nil
}

func setDefault(limit *time.Duration, value time.Duration) {
	if *limit == 0 {
		*limit = value
	}
}

// Conn is a TLS connection to a server whose evidence was accepted.
type Conn struct {
	*tls.Conn
	verification Verification
	lifetime     lifetime
}

// Verification is what was verified of the server.
func (c *Conn) Verification() Verification { return c.verification }

// Write sends bytes, unless the evidence has become too old since the last request began.
func (c *Conn) Write(bytes []byte) (int, error) {
	if err := c.lifetime.check(); err != nil {
		return 0, err
	}
	return c.Conn.Write(bytes)
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.lifetime.end()
	return c.Conn.Close()
}

// Dial connects to address, HOST:PORT, verifies the server and returns the connection, which carries HTTP/1.1. The
// name is sent as the TLS server name and is no reason to trust the server. The error is an *AttestationError if its
// evidence is not accepted.
func (c *Client) Dial(ctx context.Context, address string) (*Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &UsageError{fmt.Sprintf("address %q, wanted HOST:PORT", address)}
	}
	dialing, cancel := context.WithTimeout(ctx, c.options.DialTimeout)
	defer cancel()
	stream, err := c.dialStream(dialing, address)
	if err != nil {
		return nil, fmt.Errorf("%s: dial: %w", address, err)
	}
	opening, cancel := context.WithTimeout(ctx, c.options.ChannelTimeout)
	defer cancel()
	conn := tls.Client(stream, tlsConfig(host, c.options.Binding, c.options.SessionVersion))
	verification, err := c.open(opening, conn, address)
	if err != nil {
		stream.Close()
		return nil, err
	}
	opened := &Conn{Conn: conn, verification: *verification}
	opened.verification.Endpoint = address
	age := min(c.options.EvidenceAge, time.Until(time.Unix(verification.NotAfter, 0)))
	opened.lifetime.start(age, conn.Close)
	return opened, nil
}

// DialTLS is Dial with the signature of http.Transport's DialTLSContext. A transport that uses it must have no Proxy,
// which would go another way; Transport returns one that is made for it.
func (c *Client) DialTLS(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := c.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// tlsConfig is TLS 1.3 without resumption. The evidence decides whether the key is trusted, after the handshake has
// shown that the server holds it.
func tlsConfig(host, binding string, version int) *tls.Config {
	protocols := []string{"http/1.1"}
	if binding == "session" {
		protocols = []string{"confide-session/2", "confide-session/3", "confide-session/1"}
		if version != 0 {
			protocols = []string{fmt.Sprintf("confide-session/%d", version)}
		}
	}
	return &tls.Config{
		ServerName:             host,
		MinVersion:             tls.VersionTLS13,
		NextProtos:             protocols,
		SessionTicketsDisabled: true,
		InsecureSkipVerify:     true,
	}
}

// open runs the handshake, has the server appraised, and compares it with the first one at the same address.
func (c *Client) open(ctx context.Context, conn *tls.Conn, address string) (*Verification, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%s: TLS handshake: %w", address, causeOf(ctx, err))
	}
	state := conn.ConnectionState()
	if state.Version != tls.VersionTLS13 || state.DidResume || len(state.PeerCertificates) == 0 {
		return nil, fmt.Errorf("%s: TLS handshake: wanted a full one of TLS 1.3 with a certificate", address)
	}
	// The module's reads and writes end when the context does.
	stop := interruptAtEnd(ctx, conn)
	defer stop()
	certificate := state.PeerCertificates[0]
	var protocol []byte
	if state.NegotiatedProtocol != "" {
		protocol = []byte(state.NegotiatedProtocol)
	}
	suite := []byte{byte(state.CipherSuite >> 8), byte(state.CipherSuite)}
	session := &hostSession{conn: conn, state: state}
	calling := context.WithValue(ctx, hostSessionKey{}, session)
	var verdict json.RawMessage
	fields := [][]byte{
		[]byte(c.options.Policy), c.options.Collateral, []byte(c.options.Binding), certificate.Raw, protocol, suite,
	}
	if err := c.verifier.call(calling, address, "appraise_session", &verdict, fields...); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, fmt.Errorf("%s: %w", address, context.Cause(ctx))
	}
	var verification Verification
	if err := json.Unmarshal(verdict, &verification); err != nil {
		return nil, fmt.Errorf("%s: verdict of verifier.wasm: %w", address, err)
	}
	if err := checkKey(address, certificate, &verification); err != nil {
		return nil, err
	}
	return &verification, c.checkGuarantee(ctx, address, verdict)
}

// interruptAtEnd lets the reads and writes of a connection fail once the context has ended, until it is stopped: stop
// returns whether it came before that.
func interruptAtEnd(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
}

// causeOf prefers the reason why the context has ended, which has ended what was under way with an error of its own.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// channelBindingHint is the verifier's advice for this check (crates/verification/src/peer_refusal.rs).
const channelBindingHint = "" +
	"the evidence is of another connection: somebody may be in between, so do not use this network path"

// checkKey holds the key that Go's TLS has checked against the one that the verifier has read from the certificate.
func checkKey(address string, certificate *x509.Certificate, verification *Verification) error {
	hash := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	if got := hex.EncodeToString(hash[:]); got != verification.PubkeyHash {
		message := fmt.Sprintf("check `channel_binding` failed: evidence is for key %s, wanted the connection's key %s",
			verification.PubkeyHash, got)
		return &AttestationError{address, "channel_binding", message, channelBindingHint, nil}
	}
	return nil
}

// checkGuarantee refuses a later connection that protects otherwise than the first one to the same address.
func (c *Client) checkGuarantee(ctx context.Context, address string, verdict json.RawMessage) error {
	c.mutex.Lock()
	first, isLater := c.first[address]
	if !isLater {
		c.first[address] = verdict
	}
	c.mutex.Unlock()
	if !isLater {
		return nil
	}
	return c.verifier.call(ctx, address, "check_guarantee", new(any), first, verdict)
}

// dialStream opens the byte stream to a server, through the tunnel, or through a proxy if there is one for it.
func (c *Client) dialStream(ctx context.Context, address string) (net.Conn, error) {
	if c.tunnel != nil {
		return c.dialTunnel(ctx, address)
	}
	proxy, err := c.options.Proxy(address)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return c.options.DialContext(ctx, "tcp", address)
	}
	if !strings.EqualFold(proxy.Scheme, "http") {
		return nil, &UsageError{fmt.Sprintf("proxy %s, wanted http://HOST:PORT", proxy.Redacted())}
	}
	stream, err := c.options.DialContext(ctx, "tcp", proxyAddress(proxy))
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", proxy.Host, err)
	}
	if err := connectThrough(ctx, stream, proxy, address); err != nil {
		stream.Close()
		return nil, fmt.Errorf("proxy %s: %w", proxy.Host, causeOf(ctx, err))
	}
	return stream, nil
}
