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
	Name: "fhir-sessions", Short: "Lists and ends sessions of the running gateway", Long: "Shows who is signed in, and from which address." + personHelp,
	Subcommands: []Subcommand{
		{Use: "list", Short: "Lists all sessions, or those of one person", Args: cobra.NoArgs, Flags: userFlag, Run: (*Call).listSessions},
		{
			Use: "end [<sid>]", Short: "Ends one session, or all sessions of a person; refresh tokens with offline_access remain valid", Args: cobra.MaximumNArgs(1), Flags: userFlag,
			Run: (*Call).endSessions,
		},
	},
}

var grantsCommand = Command{
	Name: "fhir-grants", Short: "Lists and revokes grants of the running gateway", Long: `
list shows which apps have access on behalf of people, and until when.

revoke revokes what people and clients were granted: codes, access tokens, refresh tokens and remembered consent. This
does not prevent new sign-ins: also disable or remove the user or client.` + personHelp + `

With --users, the result of each person is printed, and one failure does not stop the others. The exit status is 1 if any
revocation failed: the person is unknown or ambiguous, or the store is unavailable.`,
	Subcommands: []Subcommand{{
		Use: "list", Short: "Lists the apps that have access on behalf of people, and when the access ends", Args: cobra.NoArgs,
		Flags: func(cmd *cobra.Command) {
			userFlag(cmd)
			cmd.Flags().String("name", "", "part of the person's name or user name")
			cmd.Flags().String("client", "", "the client_id")
		},
		Run: (*Call).listGrants,
	}, {
		Use: "revoke", Short: "Revokes all grants of people (and ends their sessions), of a client, or of people for one client", Args: cobra.NoArgs,
		Flags: func(cmd *cobra.Command) {
			userFlag(cmd)
			cmd.Flags().String("users", "", "file with one person per line, or - for standard input; replaces --user")
			cmd.Flags().String("client", "", "the client_id")
			cmd.Flags().Bool("release-sub", false, "release the sub after five minutes, so that another person of an identity provider can get it; only safe if no app stores data under it")
		},
		Run: (*Call).revokeGrants,
	}},
}

var factorsCommand = Command{
	Name: "fhir-factors", Short: "Removes lost second factors and passkeys", Long: "Manages the second factors and passkeys that people have enrolled." + personHelp,
	Subcommands: []Subcommand{{
		Use: "reset", Short: "Removes all second factors and passkeys of a person, and ends their sessions", Args: cobra.NoArgs, Flags: userFlag,
		Run: (*Call).resetFactors,
	}},
}

var idpsCommand = Command{
	Name: "fhir-idps", Short: "Shows the state of identity providers, and accepts the denials of a suspended provider", Long: `
A provider that denies almost everyone is suspended: its people get 503, and nothing is revoked, until it confirms one of
them again.`,
	Subcommands: []Subcommand{
		{Use: "list", Short: "Lists the providers with revalidation", Args: cobra.NoArgs, Run: (*Call).listIDPs},
		{Use: "accept <idp>", Short: "Accepts the denials of a suspended provider: revokes the sessions and grants of the people it denies", Args: cobra.ExactArgs(1), Run: (*Call).acceptDenials},
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
		return PrintTable(out, "IDP | STATE | LAST RESPONSE | SUSPENDED SINCE", rows)
	})
}

func (c *Call) acceptDenials() error {
	var accepted struct {
		IDP string `json:"accepted"`
	}
	return c.Do(Request{Method: http.MethodPost, Path: []string{"idps", c.Args[0], "accept"}}, &accepted, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Access that %s denies is revoked at the next checks, within the interval of revalidate.\n", accepted.IDP)
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
		return errors.New("missing session: pass a sid, or --user for all sessions of a person")
	}
	var ended struct {
		Sessions int           `json:"sessions"`
		Offline  []listedGrant `json:"offline_grants"`
	}
	return c.Do(r, &ended, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Ended sessions: %d.\n", ended.Sessions)
		if err != nil || len(ended.Offline) == 0 {
			return err
		}
		fmt.Fprintln(out, "These apps still have access; revoke it with fhir-grants revoke:")
		return printGrants(out, ended.Offline)
	})
}

// listedGrant is an app's access on behalf of a person, in the gateway's response.
type listedGrant struct {
	Term       string    `json:"term"`
	Name       string    `json:"name"`
	ClientID   string    `json:"client_id"`
	ClientName string    `json:"client_name"`
	Since      time.Time `json:"since"`
	LastUsedAt time.Time `json:"last_used"`
	Until      time.Time `json:"until"`
}

func (c *Call) listGrants() error {
	var found []listedGrant
	query := url.Values{"user": {c.Flag("user")}, "client_id": {c.Flag("client")}, "name": {c.Flag("name")}}
	return c.Do(Request{Method: http.MethodGet, Path: []string{"grants"}, Query: query}, &found, func(out io.Writer) error {
		return printGrants(out, found)
	})
}

func printGrants(out io.Writer, grants []listedGrant) error {
	var rows [][]string
	for _, g := range grants {
		until := "sign-out"
		if !g.Until.IsZero() {
			until = g.Until.Format(time.DateTime)
		}
		rows = append(rows, []string{g.Term, g.Name, g.ClientID, g.ClientName, g.Since.Format(time.DateTime), g.LastUsedAt.Format(time.DateTime), until})
	}
	return PrintTable(out, "USER | NAME | APP | APP NAME | SINCE | LAST USED | UNTIL", rows)
}

// revokedGrants is the gateway's response to the revocation of a person's or client's grants.
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
		if c.Cmd.Flags().Changed(name) && c.Flag(name) == "" { // an empty value, such as from an unset variable, would revoke too much
			return fmt.Errorf("--%s must not be empty", name)
		}
	}
	switch {
	case user == "" && list == "" && client == "":
		return errors.New("missing user or client: set --user or --users, --client, or both")
	case list != "" && (user != "" || release):
		return errors.New("--users cannot be combined with --user or --release-sub")
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
		_, err := fmt.Fprintf(out, "Revoked: %s, and %s.\n", revoked.formatCounts(), revoked.AlsoRevoked)
		if err == nil && revoked.SubReleased {
			_, err = fmt.Fprintln(out, "Another person can get this sub in five minutes, unless its current owner signs in before then.")
		}
		return err
	})
}

// MaxPeoplePerRequest is the maximum number of ?users= parameters in a request. Even with the longest subjects that OpenID
// Connect permits, they fit into the 64 KiB of headers that Caddy's admin API accepts.
const MaxPeoplePerRequest = 100

// revokeGrantsOfPeople revokes the grants of the people in a list, for one client or, if client is "", for all clients.
func (c *Call) revokeGrantsOfPeople(list, client string) error {
	people, err := c.readLines(list)
	if err != nil {
		return fmt.Errorf("reading the list of people: %w", err)
	}
	failed, done := 0, 0
	for batch := range slices.Chunk(people, MaxPeoplePerRequest) {
		n, err := c.revokeBatch(batch, client)
		if err != nil {
			return fmt.Errorf("revoking grants failed: %q and the next %d people may still have access: %w", batch[0], len(people)-done-1, err)
		}
		failed, done = failed+n, done+len(batch)
	}
	if failed > 0 {
		return fmt.Errorf("revoking grants failed for %d of %d people", failed, done)
	}
	if asJSON, _ := c.Cmd.Flags().GetBool("json"); !asJSON {
		_, err = fmt.Fprintf(c.Cmd.OutOrStdout(), "Revoked grants of people: %d.\n", done) // printed even if the list is empty, which may be a mistake
	}
	return err
}

// revokeBatch revokes the grants of the people in one request and returns the number of revocations that were not confirmed.
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
				_, err = fmt.Fprintf(out, "%s: revocation failed: %s\n", p.User, p.Error)
			} else {
				_, err = fmt.Fprintf(out, "%s: revoked %s (%s)\n", p.User, p.formatCounts(), p.Person)
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

// readLines returns the non-blank lines of a file, or of standard input if the name is "-".
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
		return errors.New("missing user: set --user")
	}
	var removed struct {
		Sessions int `json:"sessions"`
	}
	r := Request{Method: http.MethodDelete, Path: []string{"factors"}, Query: url.Values{"user": {user}}}
	return c.Do(r, &removed, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Removed the second factors of %s. Ended sessions: %d.\n", user, removed.Sessions)
		return err
	})
}

func init() { Register(keysCommand) }

var keysCommand = Command{
	Name: "fhir-keys", Short: "Lists, rotates and retires the keys of the running gateway", Long: `
Keys are rotated automatically every 90 days.

rotate creates new keys: they are published immediately and sign an hour later. The previous keys stay published until
everything they signed has expired, so no token becomes invalid. retire removes a key immediately and invalidates every
token it signed, for example if it may have leaked; a new key replaces it.`,
	Subcommands: []Subcommand{
		{Use: "list", Short: "Lists the keys", Args: cobra.NoArgs, Run: func(c *Call) error {
			return c.requestKeys(http.MethodGet)
		}},
		{Use: "rotate", Short: "Creates new keys; all tokens stay valid", Args: cobra.NoArgs, Run: func(c *Call) error {
			return c.requestKeys(http.MethodPost)
		}},
		{Use: "retire <kid>", Short: "Removes a key and invalidates the tokens it signed", Args: cobra.ExactArgs(1), Run: func(c *Call) error {
			return c.requestKeys(http.MethodDelete, c.Args[0])
		}},
	},
}

// requestKeys sends a request for the signing keys and prints the keys in the response.
func (c *Call) requestKeys(method string, path ...string) error {
	var response struct {
		Keys []struct {
			KeyID     string `json:"kid"`
			Algorithm string `json:"alg"`
			Seconds   int64  `json:"age_seconds"`
			IsActive  bool   `json:"active"`
		} `json:"keys"`
	}
	return c.Do(Request{Method: method, Path: append([]string{"keys"}, path...)}, &response, func(out io.Writer) error {
		var rows [][]string
		for _, key := range response.Keys {
			use := "signs tokens"
			if key.Algorithm == "A256GCM" {
				use = "seals cookies and forms"
			}
			active := "no"
			if key.IsActive {
				active = "yes"
			}
			rows = append(rows, []string{key.KeyID, key.Algorithm, use, active, (time.Duration(key.Seconds) * time.Second).String()})
		}
		return PrintTable(out, "KID | ALG | USE | ACTIVE | AGE", rows)
	})
}

func init() { Register(logCommand) }

var logCommand = Command{
	Name: "fhir-log", Usage: "<client_id>", Short: "Shows a client's recently rejected sign-ins and authorization and token requests", Long: `
Shows a client's most recently rejected sign-ins and authorization and token requests since the gateway started, with reasons, for
its developer. No person is named. Rejected FHIR requests are only in the audit log.`,
	Subcommands: []Subcommand{{Args: cobra.ExactArgs(1), Run: (*Call).listRejections}},
}

func (c *Call) listRejections() error {
	var found []struct {
		Time       time.Time `json:"time"`
		Kind       string    `json:"kind"`
		Outcome    string    `json:"outcome"`
		Reason     string    `json:"reason"`
		SentURI    string    `json:"redirect_uri"`
		ClosestURI string    `json:"closest_redirect_uri"`
	}
	r := Request{Method: http.MethodGet, Path: []string{"refusals"}, Query: url.Values{"client_id": {c.Args[0]}}}
	return c.Do(r, &found, func(out io.Writer) error {
		var rows [][]string
		for _, f := range found {
			if f.SentURI != "" {
				f.Reason += " (sent " + f.SentURI + "; the closest registered is " + cmp.Or(f.ClosestURI, "none") + ")"
			}
			rows = append(rows, []string{f.Time.Format(time.DateTime), f.Kind, f.Outcome, f.Reason})
		}
		if len(rows) == 0 {
			_, err := fmt.Fprintf(out, "Nothing found for client %q. This gateway has rejected none of its requests since it started; check the id with fhir-client list.\n", c.Args[0])
			return err
		}
		return PrintTable(out, "TIME | KIND | OUTCOME | REASON", rows)
	})
}
