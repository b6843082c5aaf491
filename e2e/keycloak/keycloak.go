// Package keycloak returns the command that runs the Keycloak server in this folder (see README.md).
package keycloak

import (
	"net"
	"path/filepath"
)

// Home is the folder into which Maven unpacks Keycloak, relative to this folder.
const Home = "target/keycloak-26.7.3"

// Administrator is both the name and the password of the administrator in a new database.
const Administrator = "admin"

// Environ is the environment of [Command].
var Environ = []string{"KC_BOOTSTRAP_ADMIN_USERNAME=" + Administrator, "KC_BOOTSTRAP_ADMIN_PASSWORD=" + Administrator}

// Command returns the java command that bin/kc.sh runs in production mode (start --optimized). Running java directly avoids a
// process that outlives its parent. The server listens at address, and for management at management. The database is a file.
// public is the server's public address.
func Command(folder, address, management, public, database string) []string {
	home := filepath.Join(folder, Home)
	host, port, _ := net.SplitHostPort(address)
	_, second, _ := net.SplitHostPort(management)
	return []string{
		"java", "-XX:MetaspaceSize=96M", "-XX:MaxMetaspaceSize=256m", "-Xms64m", "-Xmx512m", "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError",
		"-Dfile.encoding=UTF-8", "-Djava.security.egd=file:/dev/urandom", "-Duser.language=en", "-Duser.country=US", "--enable-native-access=ALL-UNNAMED",
		"--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
		"--add-opens=java.base/java.security=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
		"-Djava.util.concurrent.ForkJoinPool.common.threadFactory=io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory",
		"-Dkc.home.dir=" + home, "-Djboss.server.config.dir=" + filepath.Join(home, "conf"),
		"-Djava.util.logging.manager=org.jboss.logmanager.LogManager", "-Dpicocli.disable.closures=true", "-Dquarkus-log-max-startup-records=10000",
		"-cp", filepath.Join(home, "lib/quarkus-run.jar"), "io.quarkus.bootstrap.runner.QuarkusEntryPoint",
		"start", "--optimized", "--cache=local", "--http-enabled=true", "--http-host=" + host, "--http-port=" + port, "--http-management-port=" + second,
		"--hostname=" + public, "--log-level=warn", "--db-url=jdbc:h2:file:" + database + ";NON_KEYWORDS=VALUE",
	}
}
