// Asks a model behind an attested gateway one question, and prints the answer as it comes.
//
//	go run ./example https://127.0.0.1:8443 policy.toml tiny
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"confide.invalid/confide"
)

const question = `{"model": %q, "stream": true, "messages": [{"role": "user", "content": "What is confide?"}]}`

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: example https://HOST:PORT POLICY.toml MODEL")
	}
	if err := ask(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		var refused *confide.AttestationError
		if errors.As(err, &refused) {
			log.Fatalf("refused: %v", refused)
		}
		log.Fatal(err)
	}
}

func ask(server, policyFile, model string) error {
	policy, err := os.ReadFile(policyFile)
	if err != nil {
		return err
	}
	client, err := confide.NewClient(confide.Options{Policy: string(policy)})
	if err != nil {
		return err
	}
	url := server + "/v1/chat/completions"
	body := strings.NewReader(fmt.Sprintf(question, model))
	answer, err := client.HTTPClient().Post(url, "application/json", body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	fmt.Printf("guarantee: %s\n", confide.VerificationOf(answer).Guarantee)
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, answer.StatusCode)
	}
	return printAnswer(bufio.NewScanner(answer.Body))
}

func printAnswer(lines *bufio.Scanner) error {
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData || data == "[DONE]" {
			continue
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return err
		}
		for _, choice := range event.Choices {
			fmt.Print(choice.Delta.Content)
		}
	}
	fmt.Println()
	return lines.Err()
}
