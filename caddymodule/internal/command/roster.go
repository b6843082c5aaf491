package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// A Parser reads options of a client or person, each a line as in the Caddyfile, into the JSON of Caddy's configuration.
// It has only what the lines say, and the name.
type Parser func(name string, lines []string) (json.RawMessage, error)

// entry is a client or person as the admin API shows it.
type entry struct {
	Name    string    `json:"name"`
	From    string    `json:"from"`
	Since   time.Time `json:"since"`
	Waits   bool      `json:"waits"`
	Problem string    `json:"problem"`
	Secret  string    `json:"client_secret"`
}

func (e entry) state() string {
	switch {
	case e.Problem != "":
		return "not in force: " + e.Problem
	case e.Waits:
		return "waits for approval"
	}
	return "in force"
}

// RegisterRoster makes fhir-client and fhir-user known to Caddy.
func RegisterRoster(client, user Parser) {
	register(clientNoun(client))
	register(userNoun(user))
}

func clientNoun(parse Parser) noun {
	return noun{
		name: "fhir-client", short: "Adds and changes clients of the running gateway", long: `
Clients in the gateway's durable store, beside those in the Caddyfile: they are added and changed without a reload, and
are the same at all gateways that share the store. Apps that registered themselves are listed too.

An option is a line as in the Caddyfile, in quotation marks:

	caddy fhir-client add growth-chart --secret \
		"redirect_uri https://growth.example/callback" "scope launch/patient patient/*.rs"`,
		verbs: append(rosterVerbs("clients", "client_id", parse),
			verb{
				use: "approve <client_id>", short: "Approves an app that registered itself", args: cobra.ExactArgs(1),
				run: func(c *call) error { return c.about(http.MethodPost, "Approved", "clients", c.args[0], "approve") },
			},
			verb{
				use: "rotate-secret <client_id>", short: "Gives a client a new secret; the old one ends", args: cobra.ExactArgs(1),
				run: func(c *call) error { return c.about(http.MethodPost, "Changed", "clients", c.args[0], "secret") },
			},
			verb{
				use: "reset", short: "Replaces clients and people in the store that cannot be read", args: cobra.NoArgs, run: (*call).reset,
				long: "Puts the clients and people that this gateway knows in place of a record that cannot be read, which stays in the store\nunder another key. Nothing happens to one that can be read.",
			},
		),
	}
}

func userNoun(parse Parser) noun {
	return noun{
		name: "fhir-user", short: "Adds and changes people who sign in with a password", long: `
People in the gateway's durable store, beside those in the Caddyfile: they are added and changed without a reload, and
are the same at all gateways that share the store.

An option is a line as in the Caddyfile, in quotation marks:

	caddy fhir-user add wendy "fhir_user Practitioner/wendy" "group nurses" \
		"password_hash $(caddy hash-password --algorithm argon2id)"`,
		verbs: rosterVerbs("users", "name", parse),
	}
}

// rosterVerbs are those that clients and people have in common.
func rosterVerbs(kind, named string, parse Parser) []verb {
	verbs := []verb{
		{use: "list", short: "Lists all, wherever they were added", args: cobra.NoArgs, run: func(c *call) error { return c.list(kind) }},
		{use: "add <" + named + "> [<option…>]", short: "Adds one to the store", args: cobra.MinimumNArgs(1), run: func(c *call) error { return c.add(kind, parse) }},
		{
			use: "edit <" + named + "> [<option…>]", short: "Changes one in the store: each option replaces what it had of it", args: cobra.MinimumNArgs(1),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().String("patch", "", "a JSON merge patch (RFC 7396) in place of options, such as '{\"scopes\": null}'")
			},
			run: func(c *call) error { return c.edit(kind, parse) },
		},
		{
			use: "remove <" + named + ">", short: "Removes one, and ends what it was given", args: cobra.ExactArgs(1),
			run: func(c *call) error { return c.about(http.MethodDelete, "Removed", kind, c.args[0]) },
		},
	}
	if kind == "clients" {
		verbs[1].flags = func(cmd *cobra.Command) {
			cmd.Flags().Bool("secret", false, "make a secret, and print it; without it and without keys, the client is public")
		}
	}
	return verbs
}

func (c *call) list(kind string) error {
	var entries []entry
	return c.do(request{method: http.MethodGet, path: []string{kind}}, &entries, func(out io.Writer) error {
		var rows [][]string
		for _, e := range entries {
			since := ""
			if !e.Since.IsZero() {
				since = e.Since.Format(time.DateOnly)
			}
			rows = append(rows, []string{e.Name, e.From, since, e.state()})
		}
		return table(out, "NAME | FROM | SINCE | STATE", rows)
	})
}

func (c *call) add(kind string, parse Parser) error {
	config, err := parse(c.args[0], c.args[1:])
	if err != nil {
		return err
	}
	query := url.Values{}
	if secret, _ := c.cmd.Flags().GetBool("secret"); secret {
		query.Set("secret", "new")
	}
	return c.tell("Added", request{method: http.MethodPost, path: []string{kind}, query: query, body: config})
}

var errOptionsAndPatch = errors.New("say what to change: by options, or by --patch")

func (c *call) edit(kind string, parse Parser) error {
	patch := []byte(c.flag("patch"))
	if (len(patch) > 0) == (len(c.args) > 1) {
		return errOptionsAndPatch
	}
	if len(patch) == 0 {
		var err error
		if patch, err = parse(c.args[0], c.args[1:]); err != nil {
			return err
		}
	}
	return c.tell("Changed", request{method: http.MethodPatch, path: []string{kind, c.args[0]}, body: patch})
}

func (c *call) reset() error {
	var left struct {
		Clients int `json:"clients"`
		Users   int `json:"users"`
	}
	return c.do(request{method: http.MethodDelete, path: []string{"roster"}}, &left, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "In the store are now: clients %d, people %d.\n", left.Clients, left.Users)
		return err
	})
}

func (c *call) about(method, done string, path ...string) error {
	return c.tell(done, request{method: method, path: path})
}

// tell asks for a change, and prints what was done, and a new secret.
func (c *call) tell(done string, r request) error {
	var e entry
	return c.do(r, &e, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "%s %s.\n", done, e.Name)
		if err == nil && e.Secret != "" {
			_, err = fmt.Fprintf(out, "Its secret, which is not shown again: %s\n", e.Secret)
		}
		return err
	})
}
