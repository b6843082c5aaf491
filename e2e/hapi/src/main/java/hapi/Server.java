package hapi;

import ca.uhn.fhir.batch2.jobs.export.BulkDataExportProvider;
import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.context.support.IValidationSupport;
import ca.uhn.fhir.jpa.api.config.JpaStorageSettings;
import ca.uhn.fhir.jpa.api.dao.IFhirSystemDao;
import ca.uhn.fhir.jpa.binary.interceptor.BinaryStorageInterceptor;
import ca.uhn.fhir.jpa.binary.provider.BinaryAccessProvider;
import ca.uhn.fhir.jpa.graphql.GraphQLProvider;
import ca.uhn.fhir.jpa.provider.DiffProvider;
import ca.uhn.fhir.jpa.provider.JpaCapabilityStatementProvider;
import ca.uhn.fhir.jpa.provider.JpaSystemProvider;
import ca.uhn.fhir.jpa.provider.ValueSetOperationProvider;
import ca.uhn.fhir.jpa.search.DatabaseBackedPagingProvider;
import ca.uhn.fhir.rest.server.ApacheProxyAddressStrategy;
import ca.uhn.fhir.rest.server.RestfulServer;
import ca.uhn.fhir.rest.server.provider.ResourceProviderFactory;
import ca.uhn.fhir.rest.server.util.ISearchParamRegistry;
import java.net.InetSocketAddress;
import java.util.stream.Stream;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.ServerConnector;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;

/** HAPI's FHIR server at /fhir on 127.0.0.1, at the port that PORT names or a free one. */
public class Server {

	public static void main(String[] args) throws Exception {
		int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "0"));
		ApplicationContext beans = new AnnotationConfigApplicationContext(Storage.class);
		ServletContextHandler servlets = new ServletContextHandler();
		ServletHolder fhir = new ServletHolder(fhir(beans));
		fhir.setInitOrder(0); // else the first request waits for it
		servlets.addServlet(fhir, "/fhir/*");
		var jetty = new org.eclipse.jetty.server.Server(new InetSocketAddress("127.0.0.1", port));
		jetty.setHandler(servlets);
		jetty.setStopAtShutdown(true);
		jetty.start();
		port = ((ServerConnector) jetty.getConnectors()[0]).getLocalPort();
		System.out.println("listening on http://127.0.0.1:" + port + "/fhir");
	}

	private static RestfulServer fhir(ApplicationContext beans) {
		RestfulServer server = new RestfulServer(beans.getBean(FhirContext.class));
		server.registerProviders(beans.getBean(ResourceProviderFactory.class).createProviders());
		Stream.of(
						JpaSystemProvider.class,
						BulkDataExportProvider.class,
						BinaryAccessProvider.class,
						DiffProvider.class,
						GraphQLProvider.class,
						ValueSetOperationProvider.class)
				.map(beans::getBean)
				.forEach(server::registerProvider);
		server.registerInterceptor(beans.getBean(BinaryStorageInterceptor.class));
		server.setPagingProvider(beans.getBean(DatabaseBackedPagingProvider.class));
		server.setServerConformanceProvider(capabilities(beans, server));
		// X-Forwarded-Host and its kin are honoured, as a server behind a gateway is set up.
		server.setServerAddressStrategy(ApacheProxyAddressStrategy.forHttp());
		return server;
	}

	private static JpaCapabilityStatementProvider capabilities(ApplicationContext beans, RestfulServer server) {
		return new JpaCapabilityStatementProvider(
				server,
				beans.getBean(IFhirSystemDao.class),
				beans.getBean(JpaStorageSettings.class),
				beans.getBean(ISearchParamRegistry.class),
				beans.getBean(IValidationSupport.class));
	}
}
