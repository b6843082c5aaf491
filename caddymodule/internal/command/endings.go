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
	register(sessionsNoun)
	register(grantsNoun)
	register(factorsNoun)
	register(idpsNoun)
}

const whoIsMeant = `

A person is named by local:<name in the Caddyfile>, <idp>:<subject there>, the sub, the user name or the e-mail address. If
that may be several people, they are listed, and nothing is done.`

var sessionsNoun = noun{
	name: "fhir-sessions", short: "Lists and ends sessions at the running gateway", long: "Who is signed in, and where." + whoIsMeant,
	verbs: []verb{
		{use: "list", short: "Lists sessions: all, or those of a person", args: cobra.NoArgs, flags: userFlag, run: (*call).sessions},
		{
			use: "end [<sid>]", short: "Ends a session, or all of a person; refresh tokens with offline_access go on", args: cobra.MaximumNArgs(1), flags: userFlag,
			run: (*call).endSessions,
		},
	},
}

var grantsNoun = noun{
	name: "fhir-grants", short: "Ends what the running gateway has given", long: `
What people let apps have, and what clients were given: codes, access tokens, refresh tokens, and remembered consent. It
does not keep anybody out: disable or remove the user or client too.` + whoIsMeant + `

With --users, the result of each person is printed, and one failure does not stop the others. The exit status is 1 if any
person was not revoked: unknown, ambiguous, or the store is unavailable.`,
	verbs: []verb{{
		use: "revoke", short: "Ends everything of people (their sessions too), of a client, or of both", args: cobra.NoArgs,
		flags: func(cmd *cobra.Command) {
			userFlag(cmd)
			cmd.Flags().String("users", "", "a file with one person per line, or - for standard input, in place of --user")
			cmd.Flags().String("client", "", "the client_id")
			cmd.Flags().Bool("release-sub", false, "let another person of an identity provider have the person's sub after five minutes; only if apps keep nothing under it")
		},
		run: (*call).revokeGrants,
	}},
}

var factorsNoun = noun{
	name: "fhir-factors", short: "Removes second factors that people have lost", long: "Second factors and passkeys that people have set up." + whoIsMeant,
	verbs: []verb{{
		use: "reset", short: "Removes all of a person, and ends their sessions", args: cobra.NoArgs, flags: userFlag,
		run: (*call).resetFactors,
	}},
}

var idpsNoun = noun{
	name: "fhir-idps", short: "Shows how identity providers answer, and accepts the denials of a suspended one", long: `
A provider that denies nearly everybody is suspended: its people get 503, and nothing is revoked, until it confirms one of
them again.`,
	verbs: []verb{
		{use: "list", short: "Lists the providers that are asked again about people", args: cobra.NoArgs, run: (*call).listIDPs},
		{use: "accept <idp>", short: "Ends what a suspended provider denies, because it is right", args: cobra.ExactArgs(1), run: (*call).acceptDenials},
	},
}

func (c *call) listIDPs() error {
	var found []struct {
		Key       string               `json:"idp"`
		State     string               `json:"state"`
		Suspended string               `json:"suspended"`
		Latest    map[string]time.Time `json:"latest"`
	}
	return c.do(request{method: http.MethodGet, path: []string{"idps"}}, &found, func(out io.Writer) error {
		var rows [][]string
		for _, p := range found {
			last := "-"
			if at, ok := p.Latest["answered"]; ok {
				last = at.Format(time.DateTime)
			}
			rows = append(rows, []string{p.Key, p.State, last, p.Suspended})
		}
		return table(out, "IDP | STATE | LAST ANSWER | SUSPENDED SINCE", rows)
	})
}

func (c *call) acceptDenials() error {
	var accepted struct {
		IDP string `json:"accepted"`
	}
	return c.do(request{method: http.MethodPost, path: []string{"idps", c.args[0], "accept"}}, &accepted, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "What %s denies ends with the next checks, within the interval of revalidate.\n", accepted.IDP)
		return err
	})
}

func userFlag(cmd *cobra.Command) { cmd.Flags().String("user", "", "whose") }

func (c *call) sessions() error {
	var found []struct {
		ID       string    `json:"sid"`
		User     string    `json:"user"`
		UserName string    `json:"user_name"`
		Since    time.Time `json:"since"`
		Clients  []string  `json:"clients"`
		Address  string    `json:"address"`
	}
	r := request{method: http.MethodGet, path: []string{"sessions"}, query: url.Values{"user": {c.flag("user")}}}
	return c.do(r, &found, func(out io.Writer) error {
		var rows [][]string
		for _, s := range found {
			rows = append(rows, []string{s.ID, cmp.Or(s.UserName, s.User), s.Since.Format(time.DateTime), s.Address, strings.Join(s.Clients, " ")})
		}
		return table(out, "SID | USER | SINCE | ADDRESS | APPS", rows)
	})
}

func (c *call) endSessions() error {
	r := request{method: http.MethodDelete, path: append([]string{"sessions"}, c.args...), query: url.Values{"user": {c.flag("user")}}}
	if (len(c.args) == 0) == (c.flag("user") == "") {
		return errors.New("say which sessions: by a sid, or all of a person by --user")
	}
	var ended struct {
		Sessions int `json:"sessions"`
	}
	return c.do(r, &ended, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Ended sessions: %d. What goes on: refresh tokens with offline_access; fhir-grants revoke ends these too.\n", ended.Sessions)
		return err
	})
}

// endedGrants is what the gateway ended of one person or client.
type endedGrants struct {
	Person        string `json:"person"`
	Sessions      int    `json:"sessions"`
	RefreshTokens int    `json:"refresh_tokens"`
	Consents      int    `json:"consents"`
	Void          string `json:"void"`
	Released      bool   `json:"sub_released"`
}

func (e endedGrants) counts() string {
	return fmt.Sprintf("sessions %d, refresh tokens %d, consents %d", e.Sessions, e.RefreshTokens, e.Consents)
}

func (c *call) revokeGrants() error {
	user, list, client := c.flag("user"), c.flag("users"), c.flag("client")
	release, _ := c.cmd.Flags().GetBool("release-sub")
	for _, name := range []string{"user", "users", "client"} {
		if c.cmd.Flags().Changed(name) && c.flag(name) == "" { // without it, more would end
			return fmt.Errorf("--%s is empty", name)
		}
	}
	switch {
	case user == "" && list == "" && client == "":
		return errors.New("say whose grants to end: --user, --users, --client, or a person and --client")
	case list != "" && (user != "" || release):
		return errors.New("--users goes neither with --user nor with --release-sub")
	case list != "":
		return c.revokeGrantsOfEach(list, client)
	}
	r := request{method: http.MethodDelete, path: []string{"grants"}, query: url.Values{"user": {user}, "client_id": {client}}}
	if release {
		r.query.Set("release_sub", "true")
	}
	var ended endedGrants
	return c.do(r, &ended, func(out io.Writer) error {
		if ended.Person != "" {
			fmt.Fprintln(out, "Person: "+ended.Person)
		}
		_, err := fmt.Fprintf(out, "Ended: %s, and %s.\n", ended.counts(), ended.Void)
		if err == nil && ended.Released {
			_, err = fmt.Fprintln(out, "Another person may get the sub in five minutes, unless its owner signs in again before.")
		}
		return err
	})
}

// PeoplePerRequest is the maximum number of ?users= in one request. With the longest subjects of OpenID Connect, they still
// fit the 64 KiB of a request's header that Caddy's admin API reads.
const PeoplePerRequest = 100

// revokeGrantsOfEach revokes what the people of a list gave: to one client, or to all if it is empty.
func (c *call) revokeGrantsOfEach(list, client string) error {
	people, err := c.lines(list)
	if err != nil {
		return fmt.Errorf("reading the list of people: %w", err)
	}
	failed, done := 0, 0
	for some := range slices.Chunk(people, PeoplePerRequest) {
		n, err := c.revokeGrantsOfSome(some, client)
		if err != nil {
			return fmt.Errorf("%q and the %d people after them may not be revoked: %w", some[0], len(people)-done-1, err)
		}
		failed, done = failed+n, done+len(some)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d people were not revoked", failed, done)
	}
	if asJSON, _ := c.cmd.Flags().GetBool("json"); !asJSON {
		_, err = fmt.Fprintf(c.cmd.OutOrStdout(), "People: %d.\n", done) // an empty list may be a mistake
	}
	return err
}

// revokeGrantsOfSome returns how many people were not revoked for certain.
func (c *call) revokeGrantsOfSome(people []string, client string) (failed int, err error) {
	var answer struct {
		People []struct {
			User string `json:"user"`
			endedGrants
			Error string `json:"error"`
		} `json:"people"`
	}
	r := request{method: http.MethodDelete, path: []string{"grants"}, query: url.Values{"users": people, "client_id": {client}}}
	err = c.do(r, &answer, func(out io.Writer) (err error) {
		for _, p := range answer.People {
			if p.Error != "" {
				_, err = fmt.Fprintf(out, "%s: not revoked: %s\n", p.User, p.Error)
			} else {
				_, err = fmt.Fprintf(out, "%s: ended %s (%s)\n", p.User, p.counts(), p.Person)
			}
		}
		return err
	})
	failed = len(people)
	for _, p := range answer.People {
		if p.Error == "" {
			failed--
		}
	}
	return failed, err
}

// lines returns the lines of a file, or of standard input for "-", without blank ones.
func (c *call) lines(name string) (lines []string, err error) {
	read := func() ([]byte, error) { return os.ReadFile(name) }
	if name == "-" {
		read = func() ([]byte, error) { return io.ReadAll(c.cmd.InOrStdin()) }
	}
	text, err := read()
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, err
}

func (c *call) resetFactors() error {
	user := c.flag("user")
	if user == "" {
		return errors.New("say whose: --user")
	}
	var removed struct {
		Sessions int `json:"sessions"`
	}
	r := request{method: http.MethodDelete, path: []string{"factors"}, query: url.Values{"user": {user}}}
	return c.do(r, &removed, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Removed the second factors of %s, and ended sessions: %d.\n", user, removed.Sessions)
		return err
	})
}
