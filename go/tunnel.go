package confide

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The tunnel's wire format is in docs/channel.md, "Tunnel": a WebSocket (RFC 6455) whose binary messages hold the bytes
// of the connection, in which the text `eof` ends the sender's direction.
const (
	tunnelHeadBytesMax    = 16 * 1024
	tunnelMessageBytesMax = 64 * 1024
	tunnelRefusalBytesMax = 1024
	tunnelEnd             = "eof"
	tunnelCloseTimeout    = time.Second
	webSocketGUID         = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// The opcodes of WebSocket frames, the flag of a message's last frame and that of a masked frame.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
	flagFinal      = 0x80
	flagMasked     = 0x80
	controlMax     = 125
)

var errTunnelTruncated = errors.New("tunnel ended without its end-of-stream mark")

// parseTunnel reads the address of a tunnel.
func parseTunnel(text string) (*url.URL, error) {
	tunnel, err := url.Parse(text)
	isUsable := err == nil && (tunnel.Scheme == "ws" || tunnel.Scheme == "wss") && tunnel.Host != "" &&
		tunnel.User == nil && tunnel.RawQuery == "" && tunnel.Fragment == ""
	if !isUsable {
		return nil, &UsageError{fmt.Sprintf("tunnel address %q, wanted ws://HOST:PORT[/PATH] or wss://", text)}
	}
	if tunnel.Path == "" || tunnel.Path == "/" {
		tunnel.Path = "/tunnel"
	}
	if tunnel.Port() == "" {
		port := map[string]string{"ws": "80", "wss": "443"}[tunnel.Scheme]
		tunnel.Host = net.JoinHostPort(tunnel.Hostname(), port)
	}
	return tunnel, nil
}

// dialTunnel opens a stream to address through the tunnel.
func (c *Client) dialTunnel(ctx context.Context, address string) (net.Conn, error) {
	tunnel := c.tunnel
	stream, err := c.options.DialContext(ctx, "tcp", tunnel.Host)
	if err != nil {
		return nil, fmt.Errorf("tunnel %s: %w", tunnel, err)
	}
	opened, err := openTunnel(ctx, stream, tunnel, address)
	if err != nil {
		stream.Close()
		return nil, fmt.Errorf("tunnel %s: %w", tunnel, causeOf(ctx, err))
	}
	return opened, nil
}

// openTunnel asks the proxy at the other end of stream for a stream to address.
func openTunnel(ctx context.Context, stream net.Conn, tunnel *url.URL, address string) (net.Conn, error) {
	// The interruption is that of the carrier, which is under the TLS connection that takes its place below.
	stop := interruptAtEnd(ctx, stream)
	defer stop()
	if tunnel.Scheme == "wss" {
		outer := tls.Client(stream, &tls.Config{ServerName: tunnel.Hostname(), NextProtos: []string{"http/1.1"}})
		if err := outer.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		stream = outer
	}
	reader, err := upgrade(stream, tunnel, address)
	if err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return &tunnelConn{Conn: stream, reader: reader}, nil
}

// upgrade runs the handshake of the WebSocket (RFC 6455 section 4.1).
func upgrade(stream net.Conn, tunnel *url.URL, address string) (*bufio.Reader, error) {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	key := base64.StdEncoding.EncodeToString(nonce)
	target := *tunnel
	target.RawQuery = url.Values{"target": {address}}.Encode()
	request := &http.Request{Method: http.MethodGet, URL: &target, Host: tunnel.Host, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {key},
	}}
	if err := request.Write(stream); err != nil {
		return nil, err
	}
	// The limit is for the head alone.
	limited := &io.LimitedReader{R: stream, N: tunnelHeadBytesMax}
	reader := bufio.NewReader(limited)
	answer, err := http.ReadResponse(reader, request)
	switch {
	case err != nil && limited.N == 0:
		return nil, fmt.Errorf("the head of the answer is over %d bytes", tunnelHeadBytesMax)
	case err != nil:
		return nil, err
	case answer.StatusCode != http.StatusSwitchingProtocols:
		body, _ := io.ReadAll(io.LimitReader(answer.Body, tunnelRefusalBytesMax))
		return nil, fmt.Errorf("answered with %d, wanted 101: %q\nhint: check that `confide tunnel` serves the path %q "+
			"and that its --allow names %s", answer.StatusCode, body, tunnel.Path, address)
	}
	if err := checkUpgrade(answer.Header, key); err != nil {
		return nil, err
	}
	limited.N = math.MaxInt64
	return reader, nil
}

// checkUpgrade checks the header of an answer with status 101 to a request with this key (RFC 6455 section 4.1, steps 2
// to 6).
func checkUpgrade(header http.Header, key string) error {
	if upgrade := header.Get("Upgrade"); !strings.EqualFold(upgrade, "websocket") {
		return fmt.Errorf("answered with 101 and Upgrade %q, wanted \"websocket\"", upgrade)
	}
	if connection := strings.Join(header.Values("Connection"), ","); !hasToken(connection, "upgrade") {
		return fmt.Errorf("answered with 101 and Connection %q, wanted \"Upgrade\"", connection)
	}
	hash := sha1.Sum([]byte(key + webSocketGUID))
	wanted := base64.StdEncoding.EncodeToString(hash[:])
	if accepted := header.Get("Sec-Websocket-Accept"); accepted != wanted {
		return fmt.Errorf("answered with 101 and Sec-WebSocket-Accept %q, wanted %q", accepted, wanted)
	}
	for _, name := range []string{"Sec-Websocket-Extensions", "Sec-Websocket-Protocol"} {
		if chosen := header.Values(name); len(chosen) > 0 {
			return fmt.Errorf("answered with 101 and %s %q, which was not asked for", name, chosen)
		}
	}
	return nil
}

// hasToken says whether a list of tokens holds this one, in letters of either case.
func hasToken(list, token string) bool {
	for element := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(element), token) {
			return true
		}
	}
	return false
}

// tunnelConn is the stream that a tunnel carries.
type tunnelConn struct {
	net.Conn
	reader *bufio.Reader
	// The unread bytes of the current frame, and the bytes of its message so far, which goes on after it or not.
	rest        uint64
	message     uint64
	isContinued bool
	hasEnded    bool
	sending     sync.Mutex
}

// Read reads bytes of the other end, up to its end-of-stream mark.
func (t *tunnelConn) Read(room []byte) (int, error) {
	for t.rest == 0 {
		if t.hasEnded {
			return 0, io.EOF
		}
		if err := t.nextFrame(); err != nil {
			return 0, err
		}
	}
	read, err := t.reader.Read(room[:min(uint64(len(room)), t.rest)])
	t.rest -= uint64(read)
	return read, toTruncation(err)
}

// nextFrame reads frames up to one with bytes of the stream, or up to the mark at its end.
func (t *tunnelConn) nextFrame() error {
	var head [2]byte
	if _, err := io.ReadFull(t.reader, head[:]); err != nil {
		return toTruncation(err)
	}
	isFinal, opcode, length := head[0]&flagFinal != 0, head[0]&0xF, uint64(head[1]&0x7F)
	if head[0]&0x70 != 0 || head[1]&flagMasked != 0 {
		return errors.New("the tunnel broke its protocol: a frame with reserved bits or a mask")
	}
	if opcode >= opClose {
		return t.readControl(opcode, isFinal, length)
	}
	if length > controlMax {
		var err error
		if length, err = t.readExtendedLength(length); err != nil {
			return err
		}
	}
	if opcode == opText && isFinal && !t.isContinued && length == uint64(len(tunnelEnd)) {
		return t.readEnd()
	}
	if (opcode == opContinuation) != t.isContinued || opcode == opText || opcode > opBinary {
		return fmt.Errorf("the tunnel broke its protocol: a frame of kind %d with %d bytes", opcode, length)
	}
	if opcode == opBinary {
		t.message = 0
	}
	if length > tunnelMessageBytesMax-t.message {
		return fmt.Errorf("the tunnel broke its protocol: a message over %d bytes", tunnelMessageBytesMax)
	}
	t.rest, t.message, t.isContinued = length, t.message+length, !isFinal
	return nil
}

// readExtendedLength reads a length of 16 bits after 126, and one of 64 bits after 127. A shorter form has to be used
// where there is one (RFC 6455 section 5.2).
func (t *tunnelConn) readExtendedLength(mark uint64) (uint64, error) {
	var bytes [8]byte
	width, shorterMax := 2, uint64(controlMax)
	if mark == 127 {
		width, shorterMax = 8, math.MaxUint16
	}
	if _, err := io.ReadFull(t.reader, bytes[8-width:]); err != nil {
		return 0, toTruncation(err)
	}
	length := binary.BigEndian.Uint64(bytes[:])
	if length <= shorterMax {
		return 0, fmt.Errorf("the tunnel broke its protocol: the length %d in %d bytes, wanted fewer", length, width)
	}
	return length, nil
}

func (t *tunnelConn) readEnd() error {
	var mark [len(tunnelEnd)]byte
	if _, err := io.ReadFull(t.reader, mark[:]); err != nil {
		return toTruncation(err)
	}
	if string(mark[:]) != tunnelEnd {
		return errors.New("the tunnel broke its protocol: another text than its end-of-stream mark")
	}
	t.hasEnded = true
	return nil
}

func (t *tunnelConn) readControl(opcode byte, isFinal bool, length uint64) error {
	if !isFinal || length > controlMax || opcode > opPong {
		return fmt.Errorf("the tunnel broke its protocol: a control frame of kind %d that is unknown, in pieces or too long",
			opcode)
	}
	content := make([]byte, length)
	if _, err := io.ReadFull(t.reader, content); err != nil {
		return toTruncation(err)
	}
	switch opcode {
	case opClose:
		return errTunnelTruncated
	case opPing:
		return t.send(opPong, content)
	}
	return nil
}

// toTruncation names the end of the carrier: without the mark it is no end of the stream.
func toTruncation(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTunnelTruncated
	}
	return err
}

// Write sends bytes in messages of at most 64 KiB.
func (t *tunnelConn) Write(bytes []byte) (int, error) {
	sent := 0
	for sent < len(bytes) {
		piece := bytes[sent:min(len(bytes), sent+tunnelMessageBytesMax)]
		if err := t.send(opBinary, piece); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return sent, nil
}

// send sends one message in one frame, masked as frames of clients are (RFC 6455 section 5.3).
func (t *tunnelConn) send(opcode byte, content []byte) error {
	frame := []byte{flagFinal | opcode}
	switch length := len(content); {
	case length <= controlMax:
		frame = append(frame, flagMasked|byte(length))
	case length <= 0xFFFF:
		frame = binary.BigEndian.AppendUint16(append(frame, flagMasked|126), uint16(length))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, flagMasked|127), uint64(length))
	}
	var mask [4]byte
	if _, err := rand.Read(mask[:]); err != nil {
		return err
	}
	frame = append(frame, mask[:]...)
	for i, b := range content {
		frame = append(frame, b^mask[i%4])
	}
	t.sending.Lock()
	defer t.sending.Unlock()
	_, err := t.Conn.Write(frame)
	return err
}

// Close ends this direction, so that the other end sees no broken stream, and closes the connection.
func (t *tunnelConn) Close() error {
	// A write that waits ends too. A connection that is broken takes no mark.
	t.SetWriteDeadline(time.Now().Add(tunnelCloseTimeout))
	t.send(opText, []byte(tunnelEnd))
	return t.Conn.Close()
}
