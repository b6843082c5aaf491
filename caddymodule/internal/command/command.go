package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/controlchar"
)

// A Command sends requests to the running gateway. It has one or more subcommands, such as caddy fhir-sessions list.
type Command struct {
	Name        string       // name, such as fhir-sessions
	Short       string       // one-line description for the list of commands
	Long        string       // description for the command's help
	Usage       string       // arguments in the help; default: <command>
	Subcommands []Subcommand // at least one subcommand
}

// A Subcommand is one action of a [Command].
type Subcommand struct {
	Use   string               // name and arguments; by default, the subcommand is the command itself
	Short string               // one-line description
	Long  string               // description for the subcommand's help; default: Short
	Args  cobra.PositionalArgs // checks the arguments
	Flags func(*cobra.Command) // adds flags to those for the admin API's address; may be nil
	Run   func(*Call) error    // performs the action
}

// Call is an invocation of a subcommand.
type Call struct {
	Cmd  *cobra.Command // the subcommand, with its flags and output
	Args []string       // the subcommand's arguments
	send sender
}

// Register adds a command to Caddy, which generates its help, completion and manual page. It must be called from init.
func Register(n Command) {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name: n.Name, Short: n.Short, Long: n.Long, Usage: cmp.Or(n.Usage, "<command>"),
		CobraFunc: func(cmd *cobra.Command) { n.addTo(cmd, newAdminSender) },
	})
}

func (n Command) addTo(cmd *cobra.Command, ask func(*cobra.Command) (sender, error)) {
	for _, v := range n.Subcommands {
		sub := cmd
		if v.Use != "" {
			sub = &cobra.Command{Use: v.Use, Short: v.Short, Long: v.Long}
			cmd.AddCommand(sub)
		}
		v.addTo(sub, ask)
	}
}

func (v Subcommand) addTo(cmd *cobra.Command, ask func(*cobra.Command) (sender, error)) {
	cmd.Args = v.Args
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (if an id starts with -, put -- before it)", err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SilenceUsage = true // usage is printed only for invalid arguments, which have been checked at this point
		ask, err := ask(cmd)
		if err != nil {
			return err
		}
		return v.Run(&Call{cmd, args, ask})
	}
	cmd.Flags().Bool("json", false, "print the gateway's JSON response unchanged")
	addAdminFlags(cmd)
	if v.Flags != nil {
		v.Flags(cmd)
	}
}

// Do sends a request to the gateway, decodes the JSON response, and prints it with printResult or, with --json, unchanged. Control
// characters of names are not printed; in JSON, they are escaped.
func (c *Call) Do(r Request, response any, printResult func(io.Writer) error) error {
	text, err := c.send(c.Cmd.Context(), r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, response); err != nil {
		return fmt.Errorf("decoding the gateway's response: %w", err)
	}
	out := c.Cmd.OutOrStdout()
	if asJSON, _ := c.Cmd.Flags().GetBool("json"); asJSON {
		_, err = fmt.Fprintf(out, "%s\n", controlchar.EscapeJSON(bytes.TrimSpace(text)))
		return err
	}
	var printed bytes.Buffer
	err = printResult(&printed)
	_, writeErr := io.WriteString(out, controlchar.Remove(printed.String(), "\n"))
	return cmp.Or(err, writeErr)
}

// PrintTable prints rows under a heading.
func PrintTable(out io.Writer, heading string, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(heading, " | ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = controlchar.Remove(cell, "") // a line break in a name could look like another row
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// Flag returns the value of a string flag.
func (c *Call) Flag(name string) string {
	value, _ := c.Cmd.Flags().GetString(name)
	return value
}

// Request is a request to the admin API.
type Request struct {
	Method string     // HTTP method
	Path   []string   // unescaped path segments below /fhir
	Query  url.Values // query; parameters with an empty first value are omitted
	Body   []byte     // JSON body; may be nil
}

func (r Request) target() string {
	target := "/fhir"
	for _, part := range r.Path {
		target += "/" + strings.ReplaceAll(url.PathEscape(part), ".", "%2E") // so that . and .. are not interpreted as path segments
	}
	query := maps.Clone(r.Query)
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return target
}

// sender sends a request to the admin API and returns the response body. If the gateway rejects the request, the error contains
// the reason.
type sender func(context.Context, Request) ([]byte, error)

func addAdminFlags(cmd *cobra.Command) {
	cmd.Flags().String("address", "", "address of the admin API (default: the address in --config, otherwise Caddy's default)")
	cmd.Flags().String("config", "", "configuration file that contains the address of the admin API")
	cmd.Flags().String("adapter", "", "config adapter of the configuration file")
}

// maxResponse is the maximum size of a response in bytes.
const maxResponse = 64 << 20

// newAdminSender returns a sender for the admin API specified by the flags.
func newAdminSender(cmd *cobra.Command) (sender, error) {
	flags := caddycmd.Flags{FlagSet: cmd.Flags()}
	address, err := caddycmd.DetermineAdminAPIAddress(flags.String("address"), nil, flags.String("config"), flags.String("adapter"))
	if err != nil {
		return nil, fmt.Errorf("determining the address of the admin API: %w", err)
	}
	return func(_ context.Context, r Request) ([]byte, error) {
		header := http.Header{}
		if r.Body != nil {
			header.Set("Content-Type", "application/json")
		}
		response, err := caddycmd.AdminAPIRequest(address, r.Method, r.target(), header, bytes.NewReader(r.Body))
		if err != nil {
			// The error contains the URL with its query, which may contain up to a hundred users.
			return nil, errors.New("calling the gateway's admin API: " + strings.ReplaceAll(err.Error(), r.target(), Request{Path: r.Path}.target()))
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
		return text, errors.Join(err, response.Body.Close())
	}, nil
}
