package fhirapp

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/command"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/keycloakrealm"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

func init() {
	command.RegisterRoster(parseClientLines, parseUserLines)
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-totp",
		Usage: "--user <name> [--issuer-name <words>]",
		Short: "Makes the key of an authenticator app for a user",
		Long: `
Makes a new key for the second factor of a user (TOTP, RFC 6238), and prints it
as what an authenticator app takes, and as the line for the Caddyfile. Nothing
is stored. The key is a secret: give it to its owner only.

--user
    The name of the user, as in the Caddyfile.

--issuer-name
    What the app shows next to the code. Default: FHIR`,
		Flags: totpFlags(),
		Func: func(flags caddycmd.Flags) (int, error) {
			return enrolTOTP(os.Stdout, flags.String("issuer-name"), flags.String("user"))
		},
	})
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-convert",
		Usage: "keycloak --issuer <url> <realm.json>", // and the formats of features
		Short: "Converts the people and apps of another authorization server, or a code system",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(convertKeycloakCommand())
			for _, format := range codesystem.FileFormats() {
				cmd.Use += " | " + format.Name + " <" + format.File + ">"
				cmd.AddCommand(convertFileCommand(format))
			}
		},
	})
}

func totpFlags() *flag.FlagSet {
	flags := flag.NewFlagSet("fhir-totp", flag.ExitOnError)
	flags.String("user", "", "name of the user")
	flags.String("issuer-name", "FHIR", "what the app shows beside the code")
	return flags
}

func enrolTOTP(out io.Writer, issuerName, user string) (int, error) {
	if user == "" {
		return caddy.ExitCodeFailedStartup, errors.New("--user is missing: the user's name in the Caddyfile")
	}
	secret := totp.NewSecret()
	_, err := fmt.Fprintf(out, `Key, to type into an authenticator app:
	%s
Address, to show as a QR code (such as with: qrencode -t ansiutf8):
	%s
In the Caddyfile, in the block of user %s (or a placeholder such as {file./run/secrets/%[3]s.totp}):
	totp_secret %[1]s
`, secret, totp.URI(issuerName, user, secret), user)
	if err != nil {
		return caddy.ExitCodeFailedQuit, err
	}
	return caddy.ExitCodeSuccess, nil
}

func convertKeycloakCommand() *cobra.Command {
	var issuer string
	cmd := &cobra.Command{
		Use:   "keycloak --issuer <url> <realm.json>",
		Short: "Converts a realm that Keycloak exported",
		Long: `
Prints the fhir global option of a Caddyfile with the people and apps of a realm:
passwords whose hashes are argon2id, authenticator apps, redirect and logout URIs,
scopes, secrets, keys, required PKCE, PAR and request objects, and lifetimes.

Apps and people that would be protected less than at Keycloak, or that this server
rejects, are omitted. A summary on stderr, and comments in the Caddyfile, list what
was omitted or changed, and why. Read them before you use it.

Export the realm with its people, and with secrets, while Keycloak is stopped:

	kc.sh export --realm <name> --users same_file --file realm.json

--issuer
    The address of this server, such as https://fhir.hospital.example.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return convertKeycloak(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], issuer)
		},
	}
	cmd.Flags().StringVar(&issuer, "issuer", "", "address of this server")
	return cmd
}

// convertKeycloak prints the fhir block of a file's realm, and a summary of omissions and differences.
func convertKeycloak(out, summaries io.Writer, file, issuer string) error {
	if err := authorize.CheckIssuer(issuer); err != nil {
		return fmt.Errorf("--issuer: %w", err)
	}
	export, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	converted, summary, err := keycloakrealm.Convert(export, issuer, checkCaddyfile)
	if err != nil {
		return fmt.Errorf("converting %s: %w", file, err)
	}
	_, err = io.WriteString(out, converted)
	for _, line := range summary {
		_, writeErr := fmt.Fprintln(summaries, line)
		err = errors.Join(err, writeErr)
	}
	return err
}

// checkCaddyfile returns the error of a Caddyfile that does not adapt.
func checkCaddyfile(text string) error {
	adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
	_, _, err := adapter.Adapt([]byte(text), nil)
	return err
}

func convertFileCommand(format codesystem.FileFormat) *cobra.Command {
	return &cobra.Command{
		Use:   format.Name + " <" + format.File + ">",
		Short: "Makes a CodeSystem of the codes that " + format.Publisher + " publishes",
		Long: `
Prints a CodeSystem with the codes of ` + format.Help + `
The year in the file's name is the version. Keep it as a .json file among the
definitions that $expand reads.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return convertFile(cmd.OutOrStdout(), format, args[0])
		},
	}
}

// convertFile prints the CodeSystem of a file.
func convertFile(out io.Writer, format codesystem.FileFormat, name string) error {
	version := regexp.MustCompile(`20\d\d`).FindString(filepath.Base(name))
	if version == "" {
		return fmt.Errorf("converting %s: no year in its name", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := format.Convert(out, file, version); err != nil {
		return fmt.Errorf("converting %s: %w", name, err)
	}
	return nil
}

// parseClientLines reads options of a client, each a line of the Caddyfile, as [command.Parser] has it.
func parseClientLines(id string, lines []string) (json.RawMessage, error) {
	var c Client
	return parseLines(&c, id, lines, func(d *caddyfile.Dispenser) error { return c.parseOptions(d, nil) })
}

// parseUserLines is parseClientLines of a person.
func parseUserLines(name string, lines []string) (json.RawMessage, error) {
	var u User
	return parseLines(&u, name, lines, func(d *caddyfile.Dispenser) error { return u.parseOptions(d, nil) })
}

func parseLines(to any, name string, lines []string, parse func(*caddyfile.Dispenser) error) (json.RawMessage, error) {
	tokens, err := caddyfile.Tokenize([]byte("entry \"name\" {\n"+strings.Join(lines, "\n")+"\n}\n"), "option")
	if err != nil {
		return nil, err
	}
	tokens[1].Text = name // whatever is in it
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	if err := parse(d); err != nil {
		return nil, err
	}
	if d.Next() {
		return nil, d.Errf("unexpected %q after the options", d.Val())
	}
	return json.Marshal(to)
}
