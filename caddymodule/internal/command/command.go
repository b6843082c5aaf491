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

// A Command requests something from the running gateway, by one or more subcommands: caddy fhir-sessions list.
type Command struct {
	Name        string       // such as fhir-sessions
	Short       string       // description in one line, for the list of commands
	Long        string       // description for the command's help
	Usage       string       // arguments; default: <command>
	Subcommands []Subcommand // at least one
}

// A Subcommand is one action of a [Command].
type Subcommand struct {
	Use   string               // name and arguments; default: it is the command itself
	Short string               // description in one line
	Long  string               // description for its help; default: Short
	Args  cobra.PositionalArgs // checks the arguments
	Flags func(*cobra.Command) // adds flags, besides those of the admin API's address; may be nil
	Run   func(*Call) error    // the action
}

// Call is a call of a subcommand.
type Call struct {
	Cmd  *cobra.Command // the subcommand, with its flags and output
	Args []string       // its arguments
	ask  asking
}

// Register adds a command to Caddy, which makes its help, completion and manual page. It must be called from init.
func Register(n Command) {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name: n.Name, Short: n.Short, Long: n.Long, Usage: cmp.Or(n.Usage, "<command>"),
		CobraFunc: func(cmd *cobra.Command) { n.addTo(cmd, adminAPI) },
	})
}

func (n Command) addTo(cmd *cobra.Command, ask func(*cobra.Command) (asking, error)) {
	for _, v := range n.Subcommands {
		sub := cmd
		if v.Use != "" {
			sub = &cobra.Command{Use: v.Use, Short: v.Short, Long: v.Long}
			cmd.AddCommand(sub)
		}
		v.addTo(sub, ask)
	}
}

func (v Subcommand) addTo(cmd *cobra.Command, ask func(*cobra.Command) (asking, error)) {
	cmd.Args = v.Args
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (put -- before an id that begins with -)", err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SilenceUsage = true // from here on, the command was understood
		ask, err := ask(cmd)
		if err != nil {
			return err
		}
		return v.Run(&Call{cmd, args, ask})
	}
	cmd.Flags().Bool("json", false, "print the answer of the gateway as it is")
	addAdminFlags(cmd)
	if v.Flags != nil {
		v.Flags(cmd)
	}
}

// Do sends a request to the gateway, decodes the response as JSON, and prints it with show, or unchanged with --json.
func (c *Call) Do(r Request, answer any, show func(io.Writer) error) error {
	text, err := c.ask(c.Cmd.Context(), r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	out := c.Cmd.OutOrStdout()
	if asIs, _ := c.Cmd.Flags().GetBool("json"); asIs {
		_, err = fmt.Fprintln(out, strings.TrimSpace(string(text)))
		return err
	}
	return show(out)
}

// Table prints rows under a heading.
func Table(out io.Writer, heading string, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(heading, " | ", "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// Flag returns the value of a string flag.
func (c *Call) Flag(name string) string {
	value, _ := c.Cmd.Flags().GetString(name)
	return value
}
