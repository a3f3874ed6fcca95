// Does with the package confide what each line of standard input says: the Go client of tests/clients.py, which
// describes the commands and their answers.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"confide.invalid/confide"
)

const (
	// The longest command in bytes: a policy and a question.
	commandBytesMax = 1024 * 1024
	pieceBytesMax   = 64 * 1024
)

type command struct {
	Do             string
	Server         string
	Policy         string
	Binding        string
	SessionVersion int `json:"session_version"`
	Tunnel         string
	EvidenceAgeS   int `json:"evidence_age_s"`
	Body           string
}

type answer struct {
	Status  int      `json:"status,omitempty"`
	Pieces  []string `json:"pieces,omitempty"`
	Refused string   `json:"refused,omitempty"`
	Check   string   `json:"check,omitempty"`
	Failed  string   `json:"failed,omitempty"`
}

type driver struct {
	server string
	client *http.Client
}

func main() {
	var driver driver
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, commandBytesMax)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var order command
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			log.Fatal(err)
		}
		reply, err := driver.run(order)
		var refused *confide.AttestationError
		switch {
		case errors.As(err, &refused):
			reply = answer{Refused: refused.Error(), Check: refused.Check}
		case err != nil:
			reply = answer{Failed: err.Error()}
		}
		if err := answers.Encode(reply); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func (d *driver) run(order command) (answer, error) {
	switch order.Do {
	case "open":
		client, err := confide.NewClient(confide.Options{
			Policy: order.Policy, Binding: order.Binding, SessionVersion: order.SessionVersion, Tunnel: order.Tunnel,
			EvidenceAge: time.Duration(order.EvidenceAgeS) * time.Second,
		})
		if err != nil {
			return answer{}, err
		}
		d.server, d.client = order.Server, client.HTTPClient()
		return answer{}, nil
	case "close":
		d.client.CloseIdleConnections()
		return answer{}, nil
	default:
		return d.ask(order.Body)
	}
}

func (d *driver) ask(body string) (answer, error) {
	url := d.server + "/v1/chat/completions"
	response, err := d.client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	reply := answer{Status: response.StatusCode}
	buffer := make([]byte, pieceBytesMax)
	for {
		read, err := response.Body.Read(buffer)
		if read > 0 {
			reply.Pieces = append(reply.Pieces, string(buffer[:read]))
		}
		switch {
		case errors.Is(err, io.EOF):
			return reply, nil
		case err != nil:
			return answer{}, err
		}
	}
}
