package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/command"
)

func init() {
	command.Register(clientCommand)
	command.Register(userCommand)
}

var clientCommand = command.Command{
	Name: "fhir-client", Short: "Manages the clients of the running gateway", Long: `
Manages clients in the gateway's durable store, in addition to those in the Caddyfile. Changes need no reload and
apply to all gateways that share the store. Self-registered clients are listed, too.

Each option is a quoted line with Caddyfile syntax:

	caddy fhir-client add growth-chart --secret \
		"redirect_uri https://growth.example/callback" "scope launch/patient patient/*.rs"`,
	Subcommands: append(subcommands("clients", "client_id", parseClient),
		command.Subcommand{
			Use: "approve <client_id>", Short: "Approves a self-registered client", Args: cobra.ExactArgs(1),
			Run: func(c *command.Call) error {
				return requestChange(c, "Approved", command.Request{Method: http.MethodPost, Path: []string{"clients", c.Args[0], "approve"}})
			},
		},
		command.Subcommand{
			Use: "rotate-secret <client_id>", Short: "Replaces a client's secret; the old secret becomes invalid", Args: cobra.ExactArgs(1),
			Run: func(c *command.Call) error {
				return requestChange(c, "Changed", command.Request{Method: http.MethodPost, Path: []string{"clients", c.Args[0], "secret"}})
			},
		},
		command.Subcommand{
			Use: "reset", Short: "Replaces unreadable records of clients and users in the store", Args: cobra.NoArgs, Run: resetEntries,
			Long: "Replaces unreadable records with the clients and users that this gateway last read. The unreadable records stay in the\nstore under other keys. Readable records are not changed.",
		},
	),
}

var userCommand = command.Command{
	Name: "fhir-user", Short: "Manages users who sign in with a password", Long: `
Manages users in the gateway's durable store, in addition to those in the Caddyfile. Changes need no reload and
apply to all gateways that share the store.

Each option is a quoted line with Caddyfile syntax:

	caddy fhir-user add wendy "fhir_user Practitioner/wendy" "group nurses" \
		"password_hash $(caddy hash-password --algorithm argon2id)"`,
	Subcommands: subcommands("users", "name", parseUser),
}

// A parser converts the options of a client or user to the JSON of Caddy's configuration, which contains only the name and
// these options. Each option is a line as in the Caddyfile.
type parser func(name string, lines []string) (json.RawMessage, error)

// subcommands returns the subcommands that are the same for clients and users.
func subcommands(kind, argument string, parse parser) []command.Subcommand {
	commands := []command.Subcommand{
		{Use: "list", Short: "Lists all entries and where they are configured", Args: cobra.NoArgs, Run: func(c *command.Call) error { return listEntries(c, kind) }},
		{
			Use: "add <" + argument + "> [<option…>]", Short: "Adds an entry to the store", Args: cobra.MinimumNArgs(1),
			Run: func(c *command.Call) error { return addEntry(c, kind, parse) },
		},
		{
			Use: "edit <" + argument + "> [<option…>]", Short: "Changes an entry in the store: each option replaces all values of that option", Args: cobra.MinimumNArgs(1),
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().String("patch", "", "a JSON merge patch (RFC 7396) instead of options, such as '{\"scopes\": null}'")
			},
			Run: func(c *command.Call) error { return editEntry(c, kind, parse) },
		},
		{
			Use: "remove <" + argument + ">", Short: "Removes an entry and revokes its access", Args: cobra.ExactArgs(1),
			Run: func(c *command.Call) error {
				return requestChange(c, "Removed", command.Request{Method: http.MethodDelete, Path: []string{kind, c.Args[0]}})
			},
		},
	}
	if kind == "clients" {
		commands[1].Flags = func(cmd *cobra.Command) {
			cmd.Flags().Bool("secret", false, "generate a secret and print it; a client with neither secret nor keys is public")
		}
	}
	return commands
}

func listEntries(c *command.Call, kind string) error {
	var entries []fhirapp.Entry
	heading, nameMember := "NAME | DISPLAY NAME | FROM | SINCE | STATE", "display_name"
	if kind == "clients" {
		heading, nameMember = "CLIENT ID | NAME | FROM | SINCE | STATE", "name"
	}
	return c.Do(command.Request{Method: http.MethodGet, Path: []string{kind}}, &entries, func(out io.Writer) error {
		var rows [][]string
		for _, e := range entries {
			since := ""
			if !e.AddedAt.IsZero() {
				since = e.AddedAt.Format(time.DateOnly)
			}
			config, _ := e.Config.(map[string]any)
			name, _ := config[nameMember].(string)
			rows = append(rows, []string{e.Name, name, e.Origin, since, entryState(e)})
		}
		return command.PrintTable(out, heading, rows)
	})
}

func entryState(e fhirapp.Entry) string {
	switch {
	case e.Problem != "":
		return "inactive: " + e.Problem
	case e.PendingApproval:
		return "pending approval"
	}
	if config, _ := e.Config.(map[string]any); config["disabled"] == true {
		return "disabled"
	}
	return "active"
}

func addEntry(c *command.Call, kind string, parse parser) error {
	config, err := parse(c.Args[0], c.Args[1:])
	if err != nil {
		return err
	}
	query := url.Values{}
	if secret, _ := c.Cmd.Flags().GetBool("secret"); secret {
		query.Set("secret", "new")
	}
	return requestChange(c, "Added", command.Request{Method: http.MethodPost, Path: []string{kind}, Query: query, Body: config})
}

var errOptionsAndPatch = errors.New("specify the change either with options or with --patch")

func editEntry(c *command.Call, kind string, parse parser) error {
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
	return requestChange(c, "Changed", command.Request{Method: http.MethodPatch, Path: []string{kind, c.Args[0]}, Body: patch})
}

func resetEntries(c *command.Call) error {
	var counts struct {
		Clients int `json:"clients"`
		Users   int `json:"users"`
	}
	return c.Do(command.Request{Method: http.MethodDelete, Path: []string{"roster"}}, &counts, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "The store now contains: clients %d, users %d.\n", counts.Clients, counts.Users)
		return err
	})
}

// requestChange sends a request for a change. It prints the result and the new secret, if there is one.
func requestChange(c *command.Call, outcome string, r command.Request) error {
	var e fhirapp.Entry
	return c.Do(r, &e, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "%s %s.\n", outcome, e.Name)
		if err == nil && e.Secret != "" {
			_, err = fmt.Fprintf(out, "Secret (not shown again): %s\n", e.Secret)
		}
		return err
	})
}

func parseClient(id string, lines []string) (json.RawMessage, error) {
	var c fhirapp.Client
	return parseLines(&c, id, lines, c.ParseOptions)
}

func parseUser(name string, lines []string) (json.RawMessage, error) {
	var u fhirapp.User
	return parseLines(&u, name, lines, u.ParseOptions)
}

func parseLines(to any, name string, lines []string, parse func(d *caddyfile.Dispenser, checkName func(string) error) error) (json.RawMessage, error) {
	tokens, err := caddyfile.Tokenize([]byte("entry \"name\" {\n"+strings.Join(lines, "\n")+"\n}\n"), "option")
	if err != nil {
		return nil, err
	}
	tokens[1].Text = name // a name may contain any characters
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	if err := parse(d, nil); err != nil {
		return nil, err
	}
	if d.Next() {
		return nil, d.Errf("unexpected %q after the options", d.Val())
	}
	return json.Marshal(to)
}
