package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// converters contains the constructors of the subcommands of fhir-convert.
var converters []func() *cobra.Command

// RegisterConverter adds a subcommand to `caddy fhir-convert`, which converts files of other systems. It must be called from
// init. Formats of code systems are registered with [codesystem.RegisterFormats].
func RegisterConverter(subcommand func() *cobra.Command) { converters = append(converters, subcommand) }

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-convert",
		Usage: "<kind> <file>",
		Short: "Converts users and clients of another authorization server, or a code system",
		CobraFunc: func(cmd *cobra.Command) {
			for _, subcommand := range converters {
				cmd.AddCommand(subcommand())
			}
			for _, format := range codesystem.FileFormats() {
				cmd.AddCommand(newConvertCommand(format))
			}
		},
	})
}

func newConvertCommand(format codesystem.FileFormat) *cobra.Command {
	return &cobra.Command{
		Use:   format.Name + " <" + format.File + ">",
		Short: "Converts codes published by " + format.Publisher + " to a CodeSystem",
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

// convertFile converts a file and prints the resulting CodeSystem.
func convertFile(out io.Writer, format codesystem.FileFormat, name string) error {
	version := regexp.MustCompile(`20\d\d`).FindString(filepath.Base(name))
	if version == "" {
		return fmt.Errorf("converting %s: the file name contains no year", name)
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
