package confide_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"confide.invalid/confide"
)

func TestATunnelCarriesAnswersAndRefusesAnotherTarget(t *testing.T) {
	setup := readSetup(t)
	for _, tunnel := range []string{setup.Tunnel, setup.Tunnel + "/tunnel"} {
		client := newClient(t, confide.Options{Policy: setup.policy(t, "key"), Tunnel: tunnel}).HTTPClient()
		for range 2 {
			answer := post(t, client, setup.address("key"), true, 12)
			events := 0
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data: ") {
					events++
				}
			}
			if events < 12 {
				t.Errorf("%d events", events)
			}
		}
	}
	client := newClient(t, confide.Options{Policy: setup.policy(t, "key"), Tunnel: setup.Tunnel})
	_, err := client.Dial(context.Background(), "127.0.0.1:9")
	for _, words := range []string{
		setup.Tunnel + "/tunnel: ", "answered with 403", "target_refused", `the path "/tunnel"`, "--allow names 127.0.0.1:9",
	} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("wanted %q, got %v", words, err)
		}
	}
}

func TestATunnelOverTLSCarriesAnswersAndEndsWithItsContext(t *testing.T) {
	setup := readSetup(t)
	plain, err := url.Parse("http" + strings.TrimPrefix(setup.Tunnel, "ws"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 1)
	handler := http.NewServeMux()
	handler.Handle("/tunnel", httputil.NewSingleHostReverseProxy(plain))
	handler.HandleFunc("/silent", func(_ http.ResponseWriter, request *http.Request) {
		asked <- struct{}{}
		<-request.Context().Done()
	})
	server := httptest.NewTLSServer(handler)
	defer server.Close()
	tunnel := "wss" + strings.TrimPrefix(server.URL, "https")
	address := setup.address("key")
	open := func(path string, timeout time.Duration) *confide.Client {
		return newClient(t, confide.Options{
			Policy: setup.policy(t, "key"), Tunnel: tunnel + path, DialTimeout: timeout,
		})
	}

	// Nothing else in this process reads the roots of the system, which are read once.
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", roots)
	answer, err := io.ReadAll(post(t, open("", time.Minute).HTTPClient(), address, true, 12).Body)
	if err != nil || !strings.HasSuffix(string(answer), "data: [DONE]\n\n") {
		t.Errorf("%q, %v", answer, err)
	}

	// Nothing but the context orders this end of the wait after the TLS handshake: a race would be found here.
	_, err = open("/silent", time.Second).Dial(context.Background(), address)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	<-asked

	ctx, cancel := context.WithCancelCause(context.Background())
	left := errors.New("the user has left")
	go func() {
		<-asked
		cancel(left)
	}()
	if _, err := open("/silent", time.Minute).Dial(ctx, address); !errors.Is(err, left) {
		t.Error(err)
	}
}

func TestASilentTunnelEndsAtTheDeadline(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const short = 50 * time.Millisecond
	policy := "roots = [\"intel-production\"]\n"
	for name, options := range map[string]confide.Options{
		"before the upgrade": {DialTimeout: short, Tunnel: "ws://" + listener.Addr().String()},
		"after the upgrade":  {ChannelTimeout: short, Tunnel: startTunnel(t, accepted, "", stayOpen)},
		"within a frame":     {ChannelTimeout: short, Tunnel: startTunnel(t, accepted, "\x82\x05x", stayOpen)},
	} {
		options.Policy = policy
		_, err := newClient(t, options).Dial(context.Background(), "model.example:443")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPolicyRefusesAServerBehindATunnelToo(t *testing.T) {
	setup := readSetup(t)
	refuse(t, setup.address("key"), "config_digest", confide.Options{
		Policy: setup.policy(t, "session"), Binding: "key", Tunnel: setup.Tunnel,
	})
}

// accepted is the head of an answer that accepts a WebSocket. `ACCEPT` stands for the key that accepts.
const accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n" +
	"Sec-WebSocket-Accept: ACCEPT\r\n\r\n"

// readOnce reads the first bytes of the client, so that the connection is not reset when it is closed.
func readOnce(client *bufio.Reader) { client.ReadByte() }

// stayOpen reads until the client closes the connection.
func stayOpen(client *bufio.Reader) { io.Copy(io.Discard, client) }

// startTunnel starts a server that answers the handshake of a WebSocket with a head and then bytes, and closes the
// connection when `wait` has returned.
func startTunnel(t *testing.T, head, bytes string, wait func(client *bufio.Reader)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		reader := bufio.NewReader(near)
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		hash := sha1.Sum([]byte(request.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		accept := base64.StdEncoding.EncodeToString(hash[:])
		fmt.Fprint(near, strings.Replace(head, "ACCEPT", accept, 1)+bytes)
		wait(reader)
	}()
	return "ws://" + listener.Addr().String()
}

func TestATunnelThatBreaksItsProtocolIsNamed(t *testing.T) {
	policy := "roots = [\"intel-production\"]\n"
	replace := func(old, new string) string { return strings.Replace(accepted, old, new, 1) }
	// A TLS handshake message that is longer than a message of the tunnel may be, so that all of it is read.
	record := "\x16\x03\x03\x40\x00" + strings.Repeat("\x02", 16*1024)
	record = record[:5] + "\x02\x00\xff\xff" + record[9:]
	message := strings.Repeat(record, 4)[:64*1024]
	for name, row := range map[string][3]string{
		"another status": {
			"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\x1b[m", "", `answered with 200, wanted 101: "\x1b[m"`,
		},
		"another key":     {replace("ACCEPT", "other"), "", `Sec-WebSocket-Accept "other", wanted "`},
		"another upgrade": {replace("WebSocket", "h2c"), "", `Upgrade "h2c", wanted "websocket"`},
		"no upgrade":      {replace(", upgrade", ""), "", `Connection "keep-alive", wanted "Upgrade"`},
		"an extension": {
			replace("ACCEPT", "ACCEPT\r\nSec-WebSocket-Extensions: permessage-deflate"), "", "which was not asked for",
		},
		"a subprotocol": {
			replace("ACCEPT", "ACCEPT\r\nSec-WebSocket-Protocol: chat"), "", `["chat"], which was not asked for`,
		},
		"an endless head": {
			"HTTP/1.1 101 x\r\nx: " + strings.Repeat("y", 20_000), "", "the head of the answer is over 16384 bytes",
		},
		"a masked frame":          {accepted, "\x82\x81\x00\x00\x00\x00x", "reserved bits or a mask"},
		"reserved bits":           {accepted, "\xc2\x01x", "reserved bits or a mask"},
		"another text":            {accepted, "\x81\x03end", "another text than its end-of-stream mark"},
		"a longer text":           {accepted, "\x81\x04text", "a frame of kind 1 with 4 bytes"},
		"a message of 64 KiB + 1": {accepted, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x01", "a message over 65536 bytes"},
		"the same in two frames": {
			accepted, "\x02\x7f\x00\x00\x00\x00\x00\x01\x00\x00" + message + "\x80\x01x", "a message over 65536 bytes",
		},
		"a length of 125 in two bytes": {accepted, "\x82\x7e\x00\x7d", "the length 125 in 2 bytes, wanted fewer"},
		"a length of 126 in eight":     {accepted, "\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x7e", "the length 126 in 8 bytes"},
		"a frame of an unknown kind":   {accepted, "\x83\x01x", "a frame of kind 3 with 1 bytes"},
		"a control of an unknown kind": {accepted, "\x8b\x00", "a control frame of kind 11 that is unknown"},
		"a ping in pieces":             {accepted, "\x09\x00", "a control frame of kind 9 that is unknown, in pieces"},
		"a continuation first":         {accepted, "\x80\x01x", "a frame of kind 0 with 1 bytes"},
		"a long ping":                  {accepted, "\x89\x7e\x00\x80", "in pieces or too long"},
		"an end in a message":          {accepted, "\x02\x00\x81\x03eof", "a frame of kind 1 with 3 bytes"},
		"a close":                      {accepted, "\x88\x00", "without its end-of-stream mark"},
		"half a frame":                 {accepted, "\x82\x05x", "without its end-of-stream mark"},
		"nothing":                      {accepted, "", "without its end-of-stream mark"},
		"an end at once":               {accepted, "\x89\x01x\x81\x03eof", "EOF"},
	} {
		client := newClient(t, confide.Options{Policy: policy, Tunnel: startTunnel(t, row[0], row[1], readOnce)})
		_, err := client.Dial(context.Background(), "model.example:443")
		var refused *confide.AttestationError
		if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), row[2]) {
			t.Errorf("%s: wanted %q, got %v", name, row[2], err)
		}
	}
}

func TestATunnelsAddressThatCannotBeUsedIsNamed(t *testing.T) {
	policy := "roots = [\"intel-production\"]\n"
	for _, tunnel := range []string{"http://h", "ws://", "h:1", "ws://user@h", "ws://h?x", "ws://h#x"} {
		_, err := confide.NewClient(confide.Options{Policy: policy, Tunnel: tunnel})
		var usage *confide.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "tunnel address") {
			t.Errorf("%s: %v", tunnel, err)
		}
	}
}
