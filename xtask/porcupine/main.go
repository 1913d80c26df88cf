// Reads histories of single keys, one JSON object a line, and answers each with porcupine's verdict.
// What the histories mean is in model.go; who records them is xtask's business.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
)

// History is everything that clients did with one key.
type History struct {
	ID         uint64      `json:"id"`
	Key        string      `json:"key"`
	Operations []Operation `json:"operations"`
}

// Verdict answers a history: "linearizable", "violation" or "undecided".
type Verdict struct {
	ID      uint64 `json:"id"`
	Verdict string `json:"verdict"`
	// Where the visualisation of a violation is.
	Picture string `json:"picture,omitempty"`
}

func main() {
	pictures := flag.String("pictures", "", "folder for visualisations of violations")
	seconds := flag.Float64("seconds", 10, "longest time for one history")
	flag.Parse()
	if err := run(*pictures, time.Duration(*seconds*float64(time.Second))); err != nil {
		fmt.Fprintln(os.Stderr, "porcupine:", err)
		os.Exit(1)
	}
}

func run(pictures string, timeout time.Duration) error {
	decoder := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	encoder := json.NewEncoder(os.Stdout)
	for decoder.More() {
		var history History
		if err := decoder.Decode(&history); err != nil {
			return fmt.Errorf("a history: %w", err)
		}
		verdict, err := check(history, pictures, timeout)
		if err != nil {
			return err
		}
		if err := encoder.Encode(verdict); err != nil {
			return err
		}
	}
	return nil
}

func check(history History, pictures string, timeout time.Duration) (Verdict, error) {
	verdict := Verdict{ID: history.ID}
	model, operations := model(), timed(history.Operations)
	switch porcupine.CheckOperationsTimeout(model, operations, timeout) {
	case porcupine.Ok:
		verdict.Verdict = "linearizable"
	case porcupine.Unknown:
		verdict.Verdict = "undecided"
	case porcupine.Illegal:
		verdict.Verdict = "violation"
		if pictures == "" {
			return verdict, nil
		}
		_, info := porcupine.CheckOperationsVerbose(model, operations, timeout)
		verdict.Picture = filepath.Join(pictures, fmt.Sprintf("violation-%d.html", history.ID))
		if err := os.MkdirAll(pictures, 0o755); err != nil {
			return verdict, err
		}
		if err := porcupine.VisualizePath(model, info, verdict.Picture); err != nil {
			return verdict, err
		}
	}
	return verdict, nil
}
