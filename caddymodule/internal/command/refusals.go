package command

import (
	"cmp"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func init() { register(logNoun) }

var logNoun = noun{
	name: "fhir-log", usage: "<client_id>", short: "Shows what the running gateway lately refused a client", long: `
The last refusals of a client since the gateway started, with their reasons, for its developer. They name no person. All
events are in the audit trail.`,
	verbs: []verb{{args: cobra.ExactArgs(1), run: (*call).refusals}},
}

func (c *call) refusals() error {
	var found []struct {
		Time        time.Time `json:"time"`
		Kind        string    `json:"kind"`
		Outcome     string    `json:"outcome"`
		Interaction string    `json:"interaction"`
		Reason      string    `json:"reason"`
		SentURI     string    `json:"redirect_uri"`
		ClosestURI  string    `json:"closest_redirect_uri"`
	}
	r := request{method: http.MethodGet, path: []string{"refusals"}, query: url.Values{"client_id": {c.args[0]}}}
	return c.do(r, &found, func(out io.Writer) error {
		var rows [][]string
		for _, f := range found {
			if f.SentURI != "" {
				f.Reason += " (sent " + f.SentURI + "; the closest registered is " + cmp.Or(f.ClosestURI, "none") + ")"
			}
			rows = append(rows, []string{f.Time.Format(time.DateTime), f.Kind, f.Outcome, f.Interaction, f.Reason})
		}
		return table(out, "TIME | KIND | OUTCOME | INTERACTION | REASON", rows)
	})
}
