package confide

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// The verifier: `make go-module` builds it (web/build.sh --plain).
//
//go:embed verifier.wasm
var verifierModule []byte

// Pages of 64 KiB that an instance may use: evidence, collateral and their parsed forms take under a tenth of it.
const memoryPagesMax = 1024

// The length that stands for an absent field (web/src/plain.rs).
const absent = ^uint32(0)

// verifier is the compiled module. Each call gets an instance of its own, which ends with it.
type verifier struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

// loadVerifier compiles the module when it is first needed, once in a process.
var loadVerifier = sync.OnceValues(func() (*verifier, error) {
	ctx := context.Background()
	config := wazero.NewRuntimeConfig().WithMemoryLimitPages(memoryPagesMax).WithCloseOnContextDone(true)
	runtime := wazero.NewRuntimeWithConfig(ctx, config)
	module, err := runtime.CompileModule(ctx, verifierModule)
	if err != nil {
		return nil, fmt.Errorf("verifier.wasm cannot be compiled: %w", err)
	}
	host := runtime.NewHostModuleBuilder("confide")
	for name, function := range map[string]any{
		"export": exportKeys, "random": fillRandom, "read": readSession, "unix_seconds": unixSeconds,
		"write": writeSession,
	} {
		host = host.NewFunctionBuilder().WithFunc(function).Export(name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		return nil, fmt.Errorf("verifier.wasm: functions of the host: %w", err)
	}
	if err := instantiateTraps(ctx, runtime, module); err != nil {
		return nil, err
	}
	return &verifier{runtime, module}, nil
})

// instantiateTraps defines the functions of JavaScript that the module still names and never calls.
func instantiateTraps(ctx context.Context, runtime wazero.Runtime, module wazero.CompiledModule) error {
	traps := map[string]wazero.HostModuleBuilder{}
	for _, function := range module.ImportedFunctions() {
		from, name, _ := function.Import()
		if from == "confide" {
			continue
		}
		if traps[from] == nil {
			traps[from] = runtime.NewHostModuleBuilder(from)
		}
		trap := api.GoModuleFunc(func(context.Context, api.Module, []uint64) {
			panic(name + " is a function of JavaScript")
		})
		traps[from].NewFunctionBuilder().
			WithGoModuleFunction(trap, function.ParamTypes(), function.ResultTypes()).Export(name)
	}
	for from, builder := range traps {
		if _, err := builder.Instantiate(ctx); err != nil {
			return fmt.Errorf("verifier.wasm: functions of %s: %w", from, err)
		}
	}
	return nil
}

// hostSession is the TLS session of one call, as the host's functions find it in the context.
type hostSession struct {
	conn  *tls.Conn
	state tls.ConnectionState
	// The first error of the connection: the module learns only that there was one.
	err error
}

type hostSessionKey struct{}

func sessionOf(ctx context.Context) *hostSession {
	session, _ := ctx.Value(hostSessionKey{}).(*hostSession)
	return session
}

func exportKeys(ctx context.Context, module api.Module, output, outputLength, label, labelLength, context,
	contextLength uint32) uint32 {
	session := sessionOf(ctx)
	labelBytes, hasLabel := module.Memory().Read(label, labelLength)
	contextBytes, hasContext := module.Memory().Read(context, contextLength)
	if session == nil || !hasLabel || !hasContext {
		return 0
	}
	exported, err := session.state.ExportKeyingMaterial(string(labelBytes), contextBytes, int(outputLength))
	if err != nil {
		session.err = errors.Join(session.err, err)
		return 0
	}
	return success(module.Memory().Write(output, exported))
}

func fillRandom(_ context.Context, module api.Module, output, length uint32) uint32 {
	room, ok := module.Memory().Read(output, length)
	if ok {
		_, err := rand.Read(room)
		ok = err == nil
	}
	return success(ok)
}

func readSession(ctx context.Context, module api.Module, output, length uint32) int32 {
	session := sessionOf(ctx)
	room, ok := module.Memory().Read(output, length)
	if session == nil || !ok {
		return -1
	}
	read, err := session.conn.Read(room)
	if err != nil && !errors.Is(err, io.EOF) {
		session.err = errors.Join(session.err, err)
		return -1
	}
	return int32(read)
}

func writeSession(ctx context.Context, module api.Module, bytes, length uint32) uint32 {
	session := sessionOf(ctx)
	content, ok := module.Memory().Read(bytes, length)
	if session == nil || !ok {
		return 0
	}
	if _, err := session.conn.Write(content); err != nil {
		session.err = errors.Join(session.err, err)
		return 0
	}
	return 1
}

func unixSeconds(context.Context, api.Module) uint64 {
	return uint64(max(time.Now().Unix(), 0))
}

func success(ok bool) uint32 {
	if ok {
		return 1
	}
	return 0
}

// report is what the module says of an error (web/src/error.rs).
type report struct {
	Kind         string          `json:"kind"`
	Message      string          `json:"message"`
	Check        string          `json:"check"`
	Hint         string          `json:"hint"`
	Verification json.RawMessage `json:"verification"`
}

// call runs a function of the module on fields, of which a nil one is absent, and reads what it accepted into `into`.
// `name` is the server or the evidence that an error names.
func (v *verifier) call(ctx context.Context, name, function string, into any, fields ...[]byte) error {
	instance, err := v.runtime.InstantiateModule(ctx, v.module, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		return callError(ctx, name, err)
	}
	defer instance.Close(context.WithoutCancel(ctx))
	input := encodeFields(fields)
	length := uint64(len(input))
	allocated, err := instance.ExportedFunction("allocate").Call(ctx, length)
	if err != nil {
		return callError(ctx, name, err)
	}
	if !instance.Memory().Write(uint32(allocated[0]), input) {
		return fmt.Errorf("%s: verifier.wasm has no room for %d bytes", name, length)
	}
	place, err := instance.ExportedFunction(function).Call(ctx, allocated[0], length)
	if err != nil {
		return callError(ctx, name, err)
	}
	written, ok := instance.Memory().Read(uint32(place[0]>>32), uint32(place[0]))
	if !ok {
		return fmt.Errorf("%s: verifier.wasm gave no answer", name)
	}
	answer := struct {
		Accepted any     `json:"accepted"`
		Error    *report `json:"error"`
	}{Accepted: into}
	if err := json.Unmarshal(written, &answer); err != nil {
		return fmt.Errorf("%s: answer of verifier.wasm: %w", name, err)
	}
	if answer.Error == nil {
		return nil
	}
	if session := sessionOf(ctx); session != nil && session.err != nil {
		return fmt.Errorf("%s: %w", name, causeOf(ctx, session.err))
	}
	return answer.Error.toError(name)
}

func callError(ctx context.Context, name string, err error) error {
	return fmt.Errorf("%s: verifier: %w", name, causeOf(ctx, err))
}

func (r *report) toError(name string) error {
	switch r.Kind {
	case "attestation":
		return &AttestationError{name, r.Check, r.Message, r.Hint, r.Verification}
	case "usage":
		return &UsageError{r.Message}
	default:
		return fmt.Errorf("%s: %s", name, r.Message)
	}
}

func encodeFields(fields [][]byte) []byte {
	var input []byte
	for _, field := range fields {
		if field == nil {
			input = binary.BigEndian.AppendUint32(input, absent)
			continue
		}
		input = binary.BigEndian.AppendUint32(input, uint32(len(field)))
		input = append(input, field...)
	}
	return input
}
