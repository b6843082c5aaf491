package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
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
does not keep anybody out: disable or remove the user or client too.` + whoIsMeant,
	verbs: []verb{{
		use: "revoke", short: "Ends everything of a person (their sessions too), of a client, or of both", args: cobra.NoArgs,
		flags: func(cmd *cobra.Command) {
			userFlag(cmd)
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
	r := request{method: http.MethodGet, path: []string{"sessions"}, query: map[string]string{"user": c.flag("user")}}
	return c.do(r, &found, func(out io.Writer) error {
		var rows [][]string
		for _, s := range found {
			rows = append(rows, []string{s.ID, cmp.Or(s.UserName, s.User), s.Since.Format(time.DateTime), s.Address, strings.Join(s.Clients, " ")})
		}
		return table(out, "SID | USER | SINCE | ADDRESS | APPS", rows)
	})
}

func (c *call) endSessions() error {
	r := request{method: http.MethodDelete, path: append([]string{"sessions"}, c.args...), query: map[string]string{"user": c.flag("user")}}
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

func (c *call) revokeGrants() error {
	user, client := c.flag("user"), c.flag("client")
	if user == "" && client == "" {
		return errors.New("say whose grants to end: --user, --client or both")
	}
	var ended struct {
		Person        string `json:"person"`
		Sessions      int    `json:"sessions"`
		RefreshTokens int    `json:"refresh_tokens"`
		Consents      int    `json:"consents"`
		Void          string `json:"void"`
		Released      bool   `json:"sub_released"`
	}
	r := request{method: http.MethodDelete, path: []string{"grants"}, query: map[string]string{"user": user, "client_id": client}}
	if release, _ := c.cmd.Flags().GetBool("release-sub"); release {
		r.query["release_sub"] = "true"
	}
	return c.do(r, &ended, func(out io.Writer) error {
		if ended.Person != "" {
			fmt.Fprintln(out, "Person: "+ended.Person)
		}
		_, err := fmt.Fprintf(out, "Ended: sessions %d, refresh tokens %d, consents %d, and %s.\n", ended.Sessions, ended.RefreshTokens, ended.Consents, ended.Void)
		if err == nil && ended.Released {
			_, err = fmt.Fprintln(out, "Another person may get the sub in five minutes, unless its owner signs in again before.")
		}
		return err
	})
}

func (c *call) resetFactors() error {
	user := c.flag("user")
	if user == "" {
		return errors.New("say whose: --user")
	}
	var removed struct {
		Sessions int `json:"sessions"`
	}
	r := request{method: http.MethodDelete, path: []string{"factors"}, query: map[string]string{"user": user}}
	return c.do(r, &removed, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "Removed the second factors of %s, and ended sessions: %d.\n", user, removed.Sessions)
		return err
	})
}
