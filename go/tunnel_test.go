package confide_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

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
	if err == nil || !strings.Contains(err.Error(), "answered with 403") || !strings.Contains(err.Error(), "target_refused") {
		t.Error(err)
	}
}

func TestAPolicyRefusesAServerBehindATunnelToo(t *testing.T) {
	setup := readSetup(t)
	refuse(t, setup.address("key"), "config_digest", confide.Options{
		Policy: setup.policy(t, "session"), Binding: "key", Tunnel: setup.Tunnel,
	})
}

// startTunnel starts a server that answers the handshake of a WebSocket with a head and then bytes. `ACCEPT` in the head
// stands for the key that accepts.
func startTunnel(t *testing.T, head, bytes string) string {
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
		// The client's first message is read, so that the connection is not reset.
		reader.ReadByte()
	}()
	return "ws://" + listener.Addr().String()
}

func TestATunnelThatBreaksItsProtocolIsNamed(t *testing.T) {
	const accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Accept: ACCEPT\r\n\r\n"
	policy := "roots = [\"intel-production\"]\n"
	for name, row := range map[string][3]string{
		"another status":          {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", "answered with 200, wanted 101"},
		"no acceptance":           {strings.Replace(accepted, "ACCEPT", "other", 1), "", "accepted no WebSocket"},
		"an endless head":         {"HTTP/1.1 101 x\r\nx: " + strings.Repeat("y", 20_000), "", "unexpected EOF"},
		"a masked frame":          {accepted, "\x82\x81\x00\x00\x00\x00x", "reserved bits or a mask"},
		"reserved bits":           {accepted, "\xc2\x01x", "reserved bits or a mask"},
		"another text":            {accepted, "\x81\x03end", "another text than its end-of-stream mark"},
		"a longer text":           {accepted, "\x81\x04text", "a frame of kind 1 with 4 bytes"},
		"a message of 64 KiB + 1": {accepted, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x01", "a frame of kind 2 with 65537 bytes"},
		"a continuation first":    {accepted, "\x80\x01x", "a frame of kind 0 with 1 bytes"},
		"a long ping":             {accepted, "\x89\x7e\x00\x80", "a control frame that is too long"},
		"an end in a message":     {accepted, "\x02\x00\x81\x03eof", "a frame of kind 1 with 3 bytes"},
		"a close":                 {accepted, "\x88\x00", "without its end-of-stream mark"},
		"half a frame":            {accepted, "\x82\x05x", "without its end-of-stream mark"},
		"nothing":                 {accepted, "", "without its end-of-stream mark"},
		"an end at once":          {accepted, "\x89\x01x\x81\x03eof", "EOF"},
	} {
		client := newClient(t, confide.Options{Policy: policy, Tunnel: startTunnel(t, row[0], row[1])})
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
