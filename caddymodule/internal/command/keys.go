package command

import (
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func init() { Register(keysCommand) }

var keysCommand = Command{
	Name: "fhir-keys", Short: "Lists, replaces and retires the keys of the running gateway", Long: `
Keys are replaced every 90 days without these commands.

rotate makes new ones: they are published at once and sign an hour later. Those that they replace stay published until
nothing that they signed is valid: no token ends. retire ends a key at once, and every token that it signed, as when it
may have leaked; a new one takes its place.`,
	Subcommands: []Subcommand{
		{Use: "list", Short: "Lists the keys", Args: cobra.NoArgs, Run: func(c *Call) error {
			return c.keys(http.MethodGet)
		}},
		{Use: "rotate", Short: "Makes new keys; no token ends", Args: cobra.NoArgs, Run: func(c *Call) error {
			return c.keys(http.MethodPost)
		}},
		{Use: "retire <kid>", Short: "Ends a key, and the tokens that it signed", Args: cobra.ExactArgs(1), Run: func(c *Call) error {
			return c.keys(http.MethodDelete, c.Args[0])
		}},
	},
}

// keys asks for something about the keys, and prints which there are then.
func (c *Call) keys(method string, path ...string) error {
	var answer struct {
		Keys []struct {
			KeyID     string `json:"kid"`
			Algorithm string `json:"alg"`
			Seconds   int64  `json:"age_seconds"`
		} `json:"keys"`
	}
	return c.Do(Request{Method: method, Path: append([]string{"keys"}, path...)}, &answer, func(out io.Writer) error {
		var rows [][]string
		for _, key := range answer.Keys {
			use := "signs tokens"
			if key.Algorithm == "A256GCM" {
				use = "seals cookies and forms"
			}
			rows = append(rows, []string{key.KeyID, key.Algorithm, use, (time.Duration(key.Seconds) * time.Second).String()})
		}
		return Table(out, "KID | ALG | USE | AGE", rows)
	})
}
