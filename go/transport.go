package confide

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"time"
)

// Idle connections to one server are kept for the next request.
const (
	idleConnectionsMax = 6
	idleTimeout        = 4 * time.Minute
)

type verificationKey struct{}

// transport sends requests over attested connections only.
type transport struct{ inner *http.Transport }

// Transport returns a transport that verifies each server by the client's policy before it sends a request to it. It
// refuses every address that is not https.
func (c *Client) Transport() http.RoundTripper {
	return &transport{&http.Transport{
		// The client goes through its proxy itself: a transport would verify nothing on that way.
		Proxy:               nil,
		DialTLSContext:      c.DialTLS,
		MaxIdleConnsPerHost: idleConnectionsMax,
		IdleConnTimeout:     idleTimeout,
		ForceAttemptHTTP2:   false,
	}}
}

// HTTPClient returns an HTTP client with Transport.
func (c *Client) HTTPClient() *http.Client { return &http.Client{Transport: c.Transport()} }

// VerificationOf returns what was verified of the connection that carried the answer; nil if it came by another
// transport.
func VerificationOf(answer *http.Response) *Verification {
	if answer == nil || answer.Request == nil {
		return nil
	}
	verification, _ := answer.Request.Context().Value(verificationKey{}).(*Verification)
	return verification
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, &UsageError{"address " + request.URL.Redacted() + ", wanted https: nothing else is attested"}
	}
	verification := &Verification{}
	var conn *Conn
	var number uint64
	ctx := context.WithValue(request.Context(), verificationKey{}, verification)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			// Another one takes its place where the first was closed while it was idle.
			if conn, _ = got.Conn.(*Conn); conn != nil {
				*verification = conn.verification
				number = conn.lifetime.begin()
			}
		},
		PutIdleConn: func(err error) {
			if err == nil && conn != nil {
				conn.lifetime.finish(number)
			}
		},
	})
	return t.inner.RoundTrip(request.WithContext(ctx))
}

// CloseIdleConnections closes the connections that are kept for later requests.
func (t *transport) CloseIdleConnections() { t.inner.CloseIdleConnections() }
