package caddymodule

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/keycloakrealm"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

func init() {
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
		Name:  "fhir-revoke",
		Usage: "[--user <name> [--release-sub]] [--client <client_id>] [--address <interface>] [--config <path> [--adapter <name>]]",
		Short: "Ends everything that a user or a client was given",
		Long: `
Asks the running gateway, by Caddy's admin API, to end at once everything that a
user let clients have, or that a client was given by anybody: codes, access tokens,
refresh tokens, and the consent that was remembered. With --user alone the user's
sessions end too. With both, it ends what this user let this client have. It does not
keep anybody out: to do that, disable or remove the user or client in the Caddyfile too.

--user
    The name of the user as in the Caddyfile. For people of an identity provider
    the sub, <idp>:<subject there>, the user name or the e-mail address.

--release-sub
    Another person of an identity provider may get the user's sub ("sub" of idp)
    after five minutes. Do this only if apps keep nothing under it: what they
    have would be the other person's.

--client
    The client_id.

--address
    Where the admin API is, if it is not the default or in --config.`,
		Flags: revokeFlags(),
		Func:  revoke,
	})
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-convert",
		Usage: "keycloak --issuer <url> <realm.json>",
		Short: "Converts the people and apps of another authorization server",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(convertKeycloakCommand())
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

func revokeFlags() *flag.FlagSet {
	flags := flag.NewFlagSet("fhir-revoke", flag.ExitOnError)
	flags.String("user", "", "name of the user")
	flags.String("client", "", "client_id")
	flags.Bool("release-sub", false, "another person may get the sub")
	adminFlags(flags)
	return flags
}

// adminFlags adds those by which a command finds the admin API.
func adminFlags(flags *flag.FlagSet) {
	flags.String("address", "", "address of the admin API")
	flags.String("config", "", "configuration to read that address from")
	flags.String("adapter", "", "name of the configuration's adapter")
}

// askAdmin sends a request to the admin API.
type askAdmin func(target string) (*http.Response, error)

// decode reads the answer. Errors begin with what was being done.
func (ask askAdmin) decode(target string, answer any, asking, reading string) error {
	response, err := ask(target)
	if err != nil {
		return fmt.Errorf("%s: %w", asking, err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s: %w", reading, err)
	}
	return nil
}

// adminRequest returns what sends requests of a method to the admin API.
func adminRequest(flags caddycmd.Flags, method string) (askAdmin, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(flags.String("address"), nil, flags.String("config"), flags.String("adapter"))
	if err != nil {
		return nil, fmt.Errorf("finding the admin API: %w", err)
	}
	return func(target string) (*http.Response, error) {
		return caddycmd.AdminAPIRequest(address, method, target, nil, nil)
	}, nil
}

func revoke(flags caddycmd.Flags) (int, error) {
	ask, err := adminRequest(flags, http.MethodDelete)
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return revokeBy(os.Stdout, flags.String("user"), flags.String("client"), flags.Bool("release-sub"), ask)
}

// revokeBy ends everything of a user, a client or both, and prints what ended. ask sends a DELETE to the admin API.
func revokeBy(out io.Writer, user, clientID string, release bool, ask askAdmin) (int, error) {
	query := url.Values{}
	for name, value := range map[string]string{"user": user, "client_id": clientID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if len(query) == 0 {
		return caddy.ExitCodeFailedStartup, errors.New("say whose grants to end: --user, --client or both")
	}
	if release {
		query.Set("release_sub", "true")
	}
	var ended endedGrants
	if err := ask.decode(adminGrants+"?"+query.Encode(), &ended, "ending what was given", "reading what was ended"); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	_, err := fmt.Fprintf(out, "Ended: sessions %d, refresh tokens %d, consents %d, and %s.\n", ended.Sessions, ended.RefreshTokens, ended.Consents, ended.Void)
	if err == nil && ended.Released {
		_, err = fmt.Fprintln(out, "Another person may get the sub in five minutes, unless its owner signs in again before.")
	}
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
scopes, secrets. A comment says what was not taken over, and why. Read it before
you use it.

Export the realm with its people, and with secrets, while Keycloak is stopped:

	kc.sh export --realm <name> --users same_file --file realm.json

--issuer
    The address of this server, such as https://fhir.hospital.example.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return convertKeycloak(cmd.OutOrStdout(), args[0], issuer)
		},
	}
	cmd.Flags().StringVar(&issuer, "issuer", "", "address of this server")
	return cmd
}

// convertKeycloak prints what a file's realm is here.
func convertKeycloak(out io.Writer, file, issuer string) error {
	if err := authorize.CheckIssuer(issuer); err != nil {
		return fmt.Errorf("--issuer: %w", err)
	}
	export, err := os.ReadFile(file)
	if err == nil {
		var converted string
		if converted, err = keycloakrealm.Convert(export, issuer); err == nil {
			_, err = io.WriteString(out, converted)
		}
	}
	if err != nil {
		return fmt.Errorf("converting %s: %w", file, err)
	}
	return nil
}
