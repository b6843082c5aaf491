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
	Register(clientCommand(client))
	Register(userCommand(user))
}

func clientCommand(parse Parser) Command {
	return Command{
		Name: "fhir-client", Short: "Adds and changes clients of the running gateway", Long: `
Clients in the gateway's durable store, beside those in the Caddyfile: they are added and changed without a reload, and
are the same at all gateways that share the store. Apps that registered themselves are listed too.

An option is a line as in the Caddyfile, in quotation marks:

	caddy fhir-client add growth-chart --secret \
		"redirect_uri https://growth.example/callback" "scope launch/patient patient/*.rs"`,
		Subcommands: append(rosterSubcommands("clients", "client_id", parse),
			Subcommand{
				Use: "approve <client_id>", Short: "Approves an app that registered itself", Args: cobra.ExactArgs(1),
				Run: func(c *Call) error { return c.about(http.MethodPost, "Approved", "clients", c.Args[0], "approve") },
			},
			Subcommand{
				Use: "rotate-secret <client_id>", Short: "Gives a client a new secret; the old one ends", Args: cobra.ExactArgs(1),
				Run: func(c *Call) error { return c.about(http.MethodPost, "Changed", "clients", c.Args[0], "secret") },
			},
			Subcommand{
				Use: "reset", Short: "Replaces clients and people in the store that cannot be read", Args: cobra.NoArgs, Run: (*Call).reset,
				Long: "Puts the clients and people that this gateway knows in place of a record that cannot be read, which stays in the store\nunder another key. Nothing happens to one that can be read.",
			},
		),
	}
}

func userCommand(parse Parser) Command {
	return Command{
		Name: "fhir-user", Short: "Adds and changes people who sign in with a password", Long: `
People in the gateway's durable store, beside those in the Caddyfile: they are added and changed without a reload, and
are the same at all gateways that share the store.

An option is a line as in the Caddyfile, in quotation marks:

	caddy fhir-user add wendy "fhir_user Practitioner/wendy" "group nurses" \
		"password_hash $(caddy hash-password --algorithm argon2id)"`,
		Subcommands: rosterSubcommands("users", "name", parse),
	}
}

// rosterSubcommands are those that clients and people have in common.
func rosterSubcommands(kind, named string, parse Parser) []Subcommand {
	verbs := []Subcommand{
		{Use: "list", Short: "Lists all, wherever they were added", Args: cobra.NoArgs, Run: func(c *Call) error { return c.list(kind) }},
		{Use: "add <" + named + "> [<option…>]", Short: "Adds one to the store", Args: cobra.MinimumNArgs(1), Run: func(c *Call) error { return c.add(kind, parse) }},
		{
			Use: "edit <" + named + "> [<option…>]", Short: "Changes one in the store: each option replaces what it had of it", Args: cobra.MinimumNArgs(1),
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().String("patch", "", "a JSON merge patch (RFC 7396) in place of options, such as '{\"scopes\": null}'")
			},
			Run: func(c *Call) error { return c.edit(kind, parse) },
		},
		{
			Use: "remove <" + named + ">", Short: "Removes one, and ends what it was given", Args: cobra.ExactArgs(1),
			Run: func(c *Call) error { return c.about(http.MethodDelete, "Removed", kind, c.Args[0]) },
		},
	}
	if kind == "clients" {
		verbs[1].Flags = func(cmd *cobra.Command) {
			cmd.Flags().Bool("secret", false, "make a secret, and print it; without it and without keys, the client is public")
		}
	}
	return verbs
}

func (c *Call) list(kind string) error {
	var entries []entry
	return c.Do(Request{Method: http.MethodGet, Path: []string{kind}}, &entries, func(out io.Writer) error {
		var rows [][]string
		for _, e := range entries {
			since := ""
			if !e.Since.IsZero() {
				since = e.Since.Format(time.DateOnly)
			}
			rows = append(rows, []string{e.Name, e.From, since, e.state()})
		}
		return Table(out, "NAME | FROM | SINCE | STATE", rows)
	})
}

func (c *Call) add(kind string, parse Parser) error {
	config, err := parse(c.Args[0], c.Args[1:])
	if err != nil {
		return err
	}
	query := url.Values{}
	if secret, _ := c.Cmd.Flags().GetBool("secret"); secret {
		query.Set("secret", "new")
	}
	return c.tell("Added", Request{Method: http.MethodPost, Path: []string{kind}, Query: query, Body: config})
}

var errOptionsAndPatch = errors.New("say what to change: by options, or by --patch")

func (c *Call) edit(kind string, parse Parser) error {
	patch := []byte(c.Flag("patch"))
	if (len(patch) > 0) == (len(c.Args) > 1) {
		return errOptionsAndPatch
	}
	if len(patch) == 0 {
		var err error
		if patch, err = parse(c.Args[0], c.Args[1:]); err != nil {
			return err
		}
	}
	return c.tell("Changed", Request{Method: http.MethodPatch, Path: []string{kind, c.Args[0]}, Body: patch})
}

func (c *Call) reset() error {
	var left struct {
		Clients int `json:"clients"`
		Users   int `json:"users"`
	}
	return c.Do(Request{Method: http.MethodDelete, Path: []string{"roster"}}, &left, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "In the store are now: clients %d, people %d.\n", left.Clients, left.Users)
		return err
	})
}

func (c *Call) about(method, done string, path ...string) error {
	return c.tell(done, Request{Method: method, Path: path})
}

// tell asks for a change, and prints what was done, and a new secret.
func (c *Call) tell(done string, r Request) error {
	var e entry
	return c.Do(r, &e, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "%s %s.\n", done, e.Name)
		if err == nil && e.Secret != "" {
			_, err = fmt.Fprintf(out, "Its secret, which is not shown again: %s\n", e.Secret)
		}
		return err
	})
}
