package command

import (
	"cmp"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func init() { Register(logCommand) }

var logCommand = Command{
	Name: "fhir-log", Usage: "<client_id>", Short: "Shows what the running gateway lately refused a client", Long: `
The last refusals of a client since the gateway started, with their reasons, for its developer. They name no person. All
events are in the audit trail.`,
	Subcommands: []Subcommand{{Args: cobra.ExactArgs(1), Run: (*Call).refusals}},
}

func (c *Call) refusals() error {
	var found []struct {
		Time        time.Time `json:"time"`
		Kind        string    `json:"kind"`
		Outcome     string    `json:"outcome"`
		Interaction string    `json:"interaction"`
		Reason      string    `json:"reason"`
		SentURI     string    `json:"redirect_uri"`
		ClosestURI  string    `json:"closest_redirect_uri"`
	}
	r := Request{Method: http.MethodGet, Path: []string{"refusals"}, Query: url.Values{"client_id": {c.Args[0]}}}
	return c.Do(r, &found, func(out io.Writer) error {
		var rows [][]string
		for _, f := range found {
			if f.SentURI != "" {
				f.Reason += " (sent " + f.SentURI + "; the closest registered is " + cmp.Or(f.ClosestURI, "none") + ")"
			}
			rows = append(rows, []string{f.Time.Format(time.DateTime), f.Kind, f.Outcome, f.Interaction, f.Reason})
		}
		return Table(out, "TIME | KIND | OUTCOME | INTERACTION | REASON", rows)
	})
}
