package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// A noun is a command whose verbs do something with things of a kind: caddy fhir-client list.
type noun struct {
	name, short, long string
	usage             string // Default: <command>
	verbs             []verb
}

// A verb is a subcommand or, without use, the command itself.
type verb struct {
	use, short, long string
	args             cobra.PositionalArgs
	flags            func(*cobra.Command) // its own; may be nil
	run              func(*call) error
}

// call is a verb as it was called.
type call struct {
	cmd  *cobra.Command
	args []string
	ask  asking
}

// register makes a command known to Caddy, which gives it its help, its completion and its manual page.
func register(n noun) {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name: n.name, Short: n.short, Long: n.long, Usage: cmp.Or(n.usage, "<command>"),
		CobraFunc: func(cmd *cobra.Command) { n.addTo(cmd, adminAPI) },
	})
}

func (n noun) addTo(cmd *cobra.Command, ask func(*cobra.Command) (asking, error)) {
	for _, v := range n.verbs {
		sub := cmd
		if v.use != "" {
			sub = &cobra.Command{Use: v.use, Short: v.short, Long: v.long}
			cmd.AddCommand(sub)
		}
		v.addTo(sub, ask)
	}
}

func (v verb) addTo(cmd *cobra.Command, ask func(*cobra.Command) (asking, error)) {
	cmd.Args = v.args
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (put -- before an id that begins with -)", err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SilenceUsage = true // from here on, the command was understood
		ask, err := ask(cmd)
		if err != nil {
			return err
		}
		return v.run(&call{cmd, args, ask})
	}
	cmd.Flags().Bool("json", false, "print the answer of the gateway as it is")
	addAdminFlags(cmd)
	if v.flags != nil {
		v.flags(cmd)
	}
}

// do asks the gateway, reads its answer, and prints it by show; or with --json unchanged.
func (c *call) do(r request, answer any, show func(io.Writer) error) error {
	text, err := c.ask(c.cmd.Context(), r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	out := c.cmd.OutOrStdout()
	if asIs, _ := c.cmd.Flags().GetBool("json"); asIs {
		_, err = fmt.Fprintln(out, strings.TrimSpace(string(text)))
		return err
	}
	return show(out)
}

// table prints rows under a heading.
func table(out io.Writer, heading string, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(heading, " | ", "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func (c *call) flag(name string) string {
	value, _ := c.cmd.Flags().GetString(name)
	return value
}
