package command

import (
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func init() { register(keysNoun) }

var keysNoun = noun{
	name: "fhir-keys", short: "Lists, replaces and retires the keys of the running gateway", long: `
Keys are replaced every 90 days without these commands.

rotate makes new ones: they are published at once and sign an hour later. Those that they replace stay published until
nothing that they signed is valid: no token ends. retire ends a key at once, and every token that it signed, as when it
may have leaked; a new one takes its place.`,
	verbs: []verb{
		{use: "list", short: "Lists the keys", args: cobra.NoArgs, run: func(c *call) error {
			return c.keys(http.MethodGet)
		}},
		{use: "rotate", short: "Makes new keys; no token ends", args: cobra.NoArgs, run: func(c *call) error {
			return c.keys(http.MethodPost)
		}},
		{use: "retire <kid>", short: "Ends a key, and the tokens that it signed", args: cobra.ExactArgs(1), run: func(c *call) error {
			return c.keys(http.MethodDelete, c.args[0])
		}},
	},
}

// keys asks for something about the keys, and prints which there are then.
func (c *call) keys(method string, path ...string) error {
	var answer struct {
		Keys []struct {
			KeyID     string `json:"kid"`
			Algorithm string `json:"alg"`
			Seconds   int64  `json:"age_seconds"`
		} `json:"keys"`
	}
	return c.do(request{method: method, path: append([]string{"keys"}, path...)}, &answer, func(out io.Writer) error {
		var rows [][]string
		for _, key := range answer.Keys {
			use := "signs tokens"
			if key.Algorithm == "A256GCM" {
				use = "seals cookies and forms"
			}
			rows = append(rows, []string{key.KeyID, key.Algorithm, use, (time.Duration(key.Seconds) * time.Second).String()})
		}
		return table(out, "KID | ALG | USE | AGE", rows)
	})
}
