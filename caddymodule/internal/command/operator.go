package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func init() {
	Register(sessionsCommand)
	Register(grantsCommand)
	Register(factorsCommand)
	Register(idpsCommand)
}

const personHelp = `

A person is named by local:<name in the Caddyfile>, <idp>:<subject there>, the sub, the user name or the e-mail address. If
that may be several people, they are listed, and nothing is done.`

var sessionsCommand = Command{
	Name: "fhir-sessions", Short: "Lists and ends sessions at the running gateway", Long: "Who is signed in, and where." + personHelp,
	Subcommands: []Subcommand{
		{Use: "list", Short: "Lists sessions: all, or those of a person", Args: cobra.NoArgs, Flags: userFlag, Run: (*Call).listSessions},
		{
			Use: "end [<sid>]", Short: "Ends a session, or all of a person; refresh tokens with offline_access go on", Args: cobra.MaximumNArgs(1), Flags: userFlag,
			Run: (*Call).endSessions,
		},
	},
}

var grantsCommand = Command{
	Name: "fhir-grants", Short: "Ends what the running gateway has given", Long: `
What people let apps have, and what clients were given: codes, access tokens, refresh tokens, and remembered consent. It
does not keep anybody out: disable or remove the user or client too.` + personHelp + `

With --users, the result of each person is printed, and one failure does not stop the others. The exit status is 1 if any
person was not revoked: unknown, ambiguous, or the store is unavailable.`,
	Subcommands: []Subcommand{{
		Use: "revoke", Short: "Ends everything of people (their sessions too), of a client, or of both", Args: cobra.NoArgs,
		Flags: func(cmd *cobra.Command) {
			userFlag(cmd)
			cmd.Flags().String("users", "", "a file with one person per line, or - for standard input, in place of --user")
			cmd.Flags().String("client", "", "the client_id")
			cmd.Flags().Bool("release-sub", false, "let another person of an identity provider have the person's sub after five minutes; only if apps keep nothing under it")
		},
		Run: (*Call).revokeGrants,
	}},
}

var factorsCommand = Command{
	Name: "fhir-factors", Short: "Removes second factors that people have lost", Long: "Second factors and passkeys that people have set up." + personHelp,
	Subcommands: []Subcommand{{
		Use: "reset", Short: "Removes all of a person, and ends their sessions", Args: cobra.NoArgs, Flags: userFlag,
		Run: (*Call).resetFactors,
	}},
}

var idpsCommand = Command{
	Name: "fhir-idps", Short: "Shows how identity providers answer, and accepts the denials of a suspended one", Long: `
A provider that denies nearly everybody is suspended: its people get 503, and nothing is revoked, until it confirms one of
them again.`,
	Subcommands: []Subcommand{
		{Use: "list", Short: "Lists the providers that are asked again about people", Args: cobra.NoArgs, Run: (*Call).listIDPs},
		{Use: "accept <idp>", Short: "Ends what a suspended provider denies, because it is right", Args: cobra.ExactArgs(1), Run: (*Call).acceptDenials},
	},
}

func (c *Call) listIDPs() error {
	var found []struct {
		Key       string               `json:"idp"`
		State     string               `json:"state"`
		Suspended string               `json:"suspended"`
		Latest    map[string]time.Time `json:"latest"`
	}
	return c.Do(Request{Method: http.MethodGet, Path: []string{"idps"}}, &found, func(out io.Writer) error {
		var rows [][]string
		for _, p := range found {
			last := "-"
			if at, ok := p.Latest["answered"]; ok {
				last = at.Format(time.DateTime)
			}
			rows = append(rows, []string{p.Key, p.State, last, p.Suspended})
		}
		return PrintTable(out, "IDP | STATE | LAST ANSWER | SUSPENDED SINCE", rows)
	})
}

func (c *Call) acceptDenials() error {
	var accepted struct {
		IDP string `json:"accepted"`
	}
	return c.Do(Request{Method: http.MethodPost, Path: []string{"idps", c.Args[0], "accept"}}, &accepted, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "What %s denies ends with the next checks, within the interval of revalidate.\n", accepted.IDP)
		return err
	})
}

func userFlag(cmd *cobra.Command) { cmd.Flags().String("user", "", "whose") }

func (c *Call) listSessions() error {
	var found []struct {
		ID       string    `json:"sid"`
		User     string    `json:"user"`
		UserName string    `json:"user_name"`
		Since    time.Time `json:"since"`
		Clients  []string  `json:"clients"`
		Address  string    `json:"address"`
	}
	r := Request{Method: http.MethodGet, Path: []string{"sessions"}, Query: url.Values{"user": {c.Flag("user")}}}
	return c.Do(r, &found, func(out io.Writer) error {
		var rows [][]string
		for _, s := range found {
			rows = append(rows, []string{s.ID, cmp.Or(s.UserName, s.User), s.Since.Format(time.DateTime), s.Address, strings.Join(s.Clients, " ")})
		}
		return PrintTable(out, "SID | USER | SINCE | ADDRESS | APPS", rows)
	})
}

func (c *Call) endSessions() error {
	r := Request{Method: http.MethodDelete, Path: append([]string{"sessions"}, c.Args...), Query: url.Values{"user": {c.Flag("user")}}}
	if (len(c.Args) == 0) == (c.Flag("user") == "") {
		return errors.New("say which sessions: by a sid, or all of a person by --user")
	}
	var ended struct {
		Sessions int `json:"sessions"`
	}
	return c.Do(r, &ended, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Ended sessions: %d. What goes on: refresh tokens with offline_access; fhir-grants revoke ends these too.\n", ended.Sessions)
		return err
	})
}

// revokedGrants is the gateway's response about the revoked grants of a person or client.
type revokedGrants struct {
	Person        string `json:"person"`
	Sessions      int    `json:"sessions"`
	RefreshTokens int    `json:"refresh_tokens"`
	Consents      int    `json:"consents"`
	AlsoRevoked   string `json:"void"`
	SubReleased   bool   `json:"sub_released"`
}

func (e revokedGrants) formatCounts() string {
	return fmt.Sprintf("sessions %d, refresh tokens %d, consents %d", e.Sessions, e.RefreshTokens, e.Consents)
}

func (c *Call) revokeGrants() error {
	user, list, client := c.Flag("user"), c.Flag("users"), c.Flag("client")
	release, _ := c.Cmd.Flags().GetBool("release-sub")
	for _, name := range []string{"user", "users", "client"} {
		if c.Cmd.Flags().Changed(name) && c.Flag(name) == "" { // an unset variable would revoke too much
			return fmt.Errorf("--%s is empty", name)
		}
	}
	switch {
	case user == "" && list == "" && client == "":
		return errors.New("say whose grants to end: --user, --users, --client, or a person and --client")
	case list != "" && (user != "" || release):
		return errors.New("--users goes neither with --user nor with --release-sub")
	case list != "":
		return c.revokeGrantsOfPeople(list, client)
	}
	r := Request{Method: http.MethodDelete, Path: []string{"grants"}, Query: url.Values{"user": {user}, "client_id": {client}}}
	if release {
		r.Query.Set("release_sub", "true")
	}
	var revoked revokedGrants
	return c.Do(r, &revoked, func(out io.Writer) error {
		if revoked.Person != "" {
			fmt.Fprintln(out, "Person: "+revoked.Person)
		}
		_, err := fmt.Fprintf(out, "Ended: %s, and %s.\n", revoked.formatCounts(), revoked.AlsoRevoked)
		if err == nil && revoked.SubReleased {
			_, err = fmt.Fprintln(out, "Another person may get the sub in five minutes, unless its owner signs in again before.")
		}
		return err
	})
}

// MaxPeoplePerRequest is the maximum number of ?users= in one request. Even with the longest subjects of OpenID Connect,
// they fit into the 64 KiB of headers that Caddy's admin API accepts.
const MaxPeoplePerRequest = 100

// revokeGrantsOfPeople revokes the grants of the people in a list, for one client, or for all clients if client is "".
func (c *Call) revokeGrantsOfPeople(list, client string) error {
	people, err := c.readLines(list)
	if err != nil {
		return fmt.Errorf("reading the list of people: %w", err)
	}
	failed, done := 0, 0
	for batch := range slices.Chunk(people, MaxPeoplePerRequest) {
		n, err := c.revokeBatch(batch, client)
		if err != nil {
			return fmt.Errorf("%q and the %d people after them may not be revoked: %w", batch[0], len(people)-done-1, err)
		}
		failed, done = failed+n, done+len(batch)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d people were not revoked", failed, done)
	}
	if asJSON, _ := c.Cmd.Flags().GetBool("json"); !asJSON {
		_, err = fmt.Fprintf(c.Cmd.OutOrStdout(), "People: %d.\n", done) // an empty list may be a mistake
	}
	return err
}

// revokeBatch returns the number of people with unconfirmed revocations.
func (c *Call) revokeBatch(people []string, client string) (failed int, err error) {
	var response struct {
		People []struct {
			User string `json:"user"`
			revokedGrants
			Error string `json:"error"`
		} `json:"people"`
	}
	r := Request{Method: http.MethodDelete, Path: []string{"grants"}, Query: url.Values{"users": people, "client_id": {client}}}
	err = c.Do(r, &response, func(out io.Writer) (err error) {
		for _, p := range response.People {
			if p.Error != "" {
				_, err = fmt.Fprintf(out, "%s: not revoked: %s\n", p.User, p.Error)
			} else {
				_, err = fmt.Fprintf(out, "%s: ended %s (%s)\n", p.User, p.formatCounts(), p.Person)
			}
		}
		return err
	})
	failed = len(people)
	for _, p := range response.People {
		if p.Error == "" {
			failed--
		}
	}
	return failed, err
}

// readLines returns the lines of a file, or of standard input for "-", without blank ones.
func (c *Call) readLines(name string) (lines []string, err error) {
	readAll := func() ([]byte, error) { return os.ReadFile(name) }
	if name == "-" {
		readAll = func() ([]byte, error) { return io.ReadAll(c.Cmd.InOrStdin()) }
	}
	text, err := readAll()
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, err
}

func (c *Call) resetFactors() error {
	user := c.Flag("user")
	if user == "" {
		return errors.New("say whose: --user")
	}
	var removed struct {
		Sessions int `json:"sessions"`
	}
	r := Request{Method: http.MethodDelete, Path: []string{"factors"}, Query: url.Values{"user": {user}}}
	return c.Do(r, &removed, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Removed the second factors of %s, and ended sessions: %d.\n", user, removed.Sessions)
		return err
	})
}

func init() { Register(keysCommand) }

var keysCommand = Command{
	Name: "fhir-keys", Short: "Lists, replaces and retires the keys of the running gateway", Long: `
Keys are replaced every 90 days without these commands.

rotate makes new ones: they are published at once and sign an hour later. Those that they replace stay published until
nothing that they signed is valid: no token ends. retire ends a key at once, and every token that it signed, as when it
may have leaked; a new one takes its place.`,
	Subcommands: []Subcommand{
		{Use: "list", Short: "Lists the keys", Args: cobra.NoArgs, Run: func(c *Call) error {
			return c.requestKeys(http.MethodGet)
		}},
		{Use: "rotate", Short: "Makes new keys; no token ends", Args: cobra.NoArgs, Run: func(c *Call) error {
			return c.requestKeys(http.MethodPost)
		}},
		{Use: "retire <kid>", Short: "Ends a key, and the tokens that it signed", Args: cobra.ExactArgs(1), Run: func(c *Call) error {
			return c.requestKeys(http.MethodDelete, c.Args[0])
		}},
	},
}

// requestKeys sends a request about the signing keys and prints the resulting keys.
func (c *Call) requestKeys(method string, path ...string) error {
	var response struct {
		Keys []struct {
			KeyID     string `json:"kid"`
			Algorithm string `json:"alg"`
			Seconds   int64  `json:"age_seconds"`
		} `json:"keys"`
	}
	return c.Do(Request{Method: method, Path: append([]string{"keys"}, path...)}, &response, func(out io.Writer) error {
		var rows [][]string
		for _, key := range response.Keys {
			use := "signs tokens"
			if key.Algorithm == "A256GCM" {
				use = "seals cookies and forms"
			}
			rows = append(rows, []string{key.KeyID, key.Algorithm, use, (time.Duration(key.Seconds) * time.Second).String()})
		}
		return PrintTable(out, "KID | ALG | USE | AGE", rows)
	})
}

func init() { Register(logCommand) }

var logCommand = Command{
	Name: "fhir-log", Usage: "<client_id>", Short: "Shows what the running gateway lately refused a client", Long: `
The last refusals of a client since the gateway started, with their reasons, for its developer. They name no person. All
events are in the audit trail.`,
	Subcommands: []Subcommand{{Args: cobra.ExactArgs(1), Run: (*Call).listRejections}},
}

func (c *Call) listRejections() error {
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
		return PrintTable(out, "TIME | KIND | OUTCOME | INTERACTION | REASON", rows)
	})
}
