package confide_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"confide.invalid/confide"
)

// The gateways that tests/go_client.sh has started, all simulated.
type setup struct {
	Folder string
	Tunnel string
	Ports  map[string]int
}

func readSetup(t *testing.T) setup {
	t.Helper()
	path := os.Getenv("CONFIDE_SETUP")
	if path == "" {
		t.Skip("skipped: no gateway (tests/go_client.sh starts one)")
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var read setup
	if err := json.Unmarshal(written, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

func (s setup) address(name string) string { return fmt.Sprintf("127.0.0.1:%d", s.Ports[name]) }

func (s setup) policy(t *testing.T, name string) string {
	t.Helper()
	policy, err := os.ReadFile(filepath.Join(s.Folder, name+".toml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(policy)
}

func newClient(t *testing.T, options confide.Options) *confide.Client {
	t.Helper()
	client, err := confide.NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

const chat = `{"model": "sim", "stream": %t, "max_tokens": %d, "messages": [{"role": "user", "content": "What is it?"}]}`

func post(t *testing.T, client *http.Client, address string, stream bool, tokens int) *http.Response {
	t.Helper()
	body := strings.NewReader(fmt.Sprintf(chat, stream, tokens))
	answer, err := client.Post("https://"+address+"/v1/chat/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d", answer.StatusCode)
	}
	return answer
}

func TestAChatAndAStreamedChatOverEachBinding(t *testing.T) {
	setup := readSetup(t)
	for name, binding := range map[string]string{"key": "key", "session": "session", "snp": "session"} {
		client := newClient(t, confide.Options{Policy: setup.policy(t, name), Binding: binding}).HTTPClient()
		answer := post(t, client, setup.address(name), false, 12)
		var read struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.NewDecoder(answer.Body).Decode(&read); err != nil || len(read.Choices[0].Message.Content) == 0 {
			t.Fatalf("%s: %v, %v", name, read, err)
		}
		verified := confide.VerificationOf(answer)
		if !verified.Simulated || verified.Guarantee != "none (simulated)" || verified.Scope != "workload" {
			t.Errorf("%s: %+v", name, verified)
		}
		if len(verified.Checks) < 5 || verified.Endpoint != setup.address(name) {
			t.Errorf("%s: %+v", name, verified)
		}
		events := 0
		for lines := bufio.NewScanner(post(t, client, setup.address(name), true, 12).Body); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data: ") {
				events++
			}
		}
		if events < 12 {
			t.Errorf("%s: %d events", name, events)
		}
	}
}

func refuse(t *testing.T, address, check string, options confide.Options) {
	t.Helper()
	_, err := newClient(t, options).Dial(context.Background(), address)
	var refused *confide.AttestationError
	if !errors.As(err, &refused) {
		t.Fatalf("wanted an AttestationError, got %v", err)
	}
	if refused.Check != check || refused.Hint == "" || refused.Server != address {
		t.Errorf("wanted check %s, got %+v", check, refused)
	}
	if !strings.Contains(err.Error(), "is not accepted: check `"+check+"` failed: ") {
		t.Error(err)
	}
}

func TestPoliciesForAnotherProgramConfigurationOrProductionRefuseTheServer(t *testing.T) {
	setup := readSetup(t)
	for _, name := range []string{"key", "session"} {
		policy := setup.policy(t, name)
		address := setup.address(name)
		for check, edit := range map[string][2]string{
			"measurements":  {`(?m)^(mrtd\s*=\s*\[?\s*")..`, "${1}0f"},
			"root":          {`(?m)^roots.*$`, `roots = ["intel-production"]`},
			"config_digest": {`(?m)^(config_digest\s*=\s*\[?\s*")......`, "${1}0f0f0f"},
		} {
			edited := regexp.MustCompile(edit[0]).ReplaceAllString(policy, edit[1])
			if edited == policy {
				t.Fatalf("%s: the policy has nothing of it: %s", check, policy)
			}
			refuse(t, address, check, confide.Options{Policy: edited, Binding: name})
		}
	}
	refuse(t, setup.address("key"), "config_digest", confide.Options{Policy: setup.policy(t, "session"), Binding: "key"})
}

func TestAnOrdinaryServerGetsNothing(t *testing.T) {
	var requests atomic.Int32
	count := func(http.ResponseWriter, *http.Request) { requests.Add(1) }
	server := httptest.NewTLSServer(http.HandlerFunc(count))
	defer server.Close()
	client := newClient(t, confide.Options{Policy: "roots = [\"intel-production\"]\n"})
	_, err := client.HTTPClient().Get(server.URL)
	var refused *confide.AttestationError
	if !errors.As(err, &refused) || refused.Check != "evidence" {
		t.Errorf("wanted a refusal for want of evidence, got %v", err)
	}
	if requests.Load() != 0 {
		t.Errorf("%d requests were sent", requests.Load())
	}
}

func TestAnotherServerBehindTheSameAddressIsRefused(t *testing.T) {
	setup := readSetup(t)
	behind := setup.address("session")
	client := newClient(t, confide.Options{
		Policy: setup.policy(t, "session"), Binding: "session",
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, behind)
		},
	})
	if _, err := client.Dial(context.Background(), "model.example:443"); err != nil {
		t.Fatal(err)
	}
	behind = setup.address("snp")
	_, err := client.Dial(context.Background(), "model.example:443")
	var refused *confide.AttestationError
	if !errors.As(err, &refused) {
		t.Errorf("wanted an AttestationError, got %v", err)
	}
}

func TestNothingGoesToAnAddressThatIsNotHTTPS(t *testing.T) {
	setup := readSetup(t)
	client := newClient(t, confide.Options{Policy: setup.policy(t, "key")}).HTTPClient()
	_, err := client.Get("http://" + setup.address("key") + "/v1/models")
	var usage *confide.UsageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "wanted https") {
		t.Error(err)
	}
}

func TestAConnectionWithOldEvidenceTakesNoFurtherRequest(t *testing.T) {
	setup := readSetup(t)
	for _, row := range []struct {
		age   time.Duration
		dials int32
	}{{time.Hour, 1}, {200 * time.Millisecond, 3}} {
		var dials atomic.Int32
		client := newClient(t, confide.Options{
			Policy: setup.policy(t, "key"), EvidenceAge: row.age,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
		}).HTTPClient()
		for range 3 {
			// The answer takes longer than the evidence may be old, and comes to its end.
			answer := post(t, client, setup.address("key"), true, 80)
			read, err := io.ReadAll(answer.Body)
			if err != nil || !strings.Contains(string(read), "data: [DONE]") {
				t.Fatalf("%s: %q, %v", row.age, read, err)
			}
			answer.Body.Close()
		}
		if dials.Load() != row.dials {
			t.Errorf("%s: %d connections, wanted %d", row.age, dials.Load(), row.dials)
		}
	}
}

// startProxy starts a proxy that answers CONNECT with `answer`, and connects where that is a 200.
func startProxy(t *testing.T, answer string) *url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				request, err := http.ReadRequest(bufio.NewReader(near))
				if err != nil || request.Method != http.MethodConnect ||
					request.Header.Get("Proxy-Authorization") != "Basic dXNlcjpzZWNyZXQ=" {
					fmt.Fprint(near, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
					return
				}
				fmt.Fprint(near, answer)
				far, err := net.Dial("tcp", request.Host)
				if err != nil {
					return
				}
				defer far.Close()
				go io.Copy(far, near)
				io.Copy(near, far)
			}()
		}
	}()
	return &url.URL{Scheme: "http", Host: listener.Addr().String(), User: url.UserPassword("user", "secret")}
}

func TestAProxyCarriesTheConnectionAndItsRefusalIsNamed(t *testing.T) {
	setup := readSetup(t)
	for answer, wanted := range map[string]string{
		"HTTP/1.1 200 Connection Established\r\n\r\n":          "",
		"HTTP/1.1 403 Forbidden\r\n\r\n":                       "CONNECT was answered with 403",
		"HTTP/1.1 200 OK\r\n\r\nbytes of the proxy":            "bytes came before",
		"HTTP/1.1 200 OK\r\nx: " + strings.Repeat("y", 20_000): "proxy",
	} {
		proxy := startProxy(t, answer)
		client := newClient(t, confide.Options{
			Policy: setup.policy(t, "key"),
			Proxy:  func(string) (*url.URL, error) { return proxy, nil },
		})
		conn, err := client.Dial(context.Background(), setup.address("key"))
		switch {
		case wanted == "" && err != nil:
			t.Error(err)
		case wanted == "":
			conn.Close()
		case err == nil || !strings.Contains(err.Error(), wanted):
			t.Errorf("wanted %q, got %v", wanted, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error names the password: %v", err)
		}
	}
}

func TestASilentServerEndsAtTheDeadline(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	policy := "roots = [\"intel-production\"]\n"
	client := newClient(t, confide.Options{Policy: policy, ChannelTimeout: 50 * time.Millisecond})
	if _, err := client.Dial(context.Background(), listener.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestOptionsThatCannotBeUsedAreNamed(t *testing.T) {
	policy := "roots = [\"intel-production\"]\n"
	for wanted, options := range map[string]confide.Options{
		"policy":               {Policy: "roots = 1"},
		"binding is":           {Policy: policy, Binding: "none"},
		"EvidenceAge is":       {Policy: policy, EvidenceAge: -1},
		"SessionVersion is":    {Policy: policy, SessionVersion: 4},
		"SessionVersion needs": {Policy: policy, SessionVersion: 3, Binding: "key"},
	} {
		_, err := confide.NewClient(options)
		var usage *confide.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), wanted) {
			t.Errorf("wanted %q, got %v", wanted, err)
		}
	}
}

func TestEvidenceAloneIsJudged(t *testing.T) {
	setup := readSetup(t)
	read := func(name string) []byte {
		written, err := os.ReadFile(filepath.Join(setup.Folder, "evidence", name))
		if err != nil {
			t.Fatal(err)
		}
		return written
	}
	ctx := context.Background()
	evidence := confide.Evidence{Bytes: read("evidence.bin"), Collateral: read("collateral.json")}
	verified, err := confide.VerifyEvidence(ctx, string(read("policy.toml")), evidence)
	if err != nil || !verified.Simulated {
		t.Fatalf("%+v, %v", verified, err)
	}
	for check, edit := range map[string]func(*confide.Evidence){
		"report_data": func(it *confide.Evidence) { it.ReportData = bytes.Repeat([]byte{1}, 64) },
		"collateral":  func(it *confide.Evidence) { it.Collateral = nil },
	} {
		edited := evidence
		edit(&edited)
		_, err := confide.VerifyEvidence(ctx, string(read("policy.toml")), edited)
		var refused *confide.AttestationError
		if !errors.As(err, &refused) || refused.Check != check {
			t.Errorf("wanted check %s, got %v", check, err)
		}
	}
	changed := evidence
	changed.Bytes = append([]byte{}, evidence.Bytes...)
	changed.Bytes[600] ^= 1
	if _, err := confide.VerifyEvidence(ctx, string(read("policy.toml")), changed); err == nil {
		t.Error("a changed quote was accepted")
	}
}
