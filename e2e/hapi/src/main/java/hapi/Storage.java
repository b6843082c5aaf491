package hapi;

import ca.uhn.fhir.batch2.api.IJobMaintenanceService;
import ca.uhn.fhir.batch2.jobs.config.Batch2JobsConfig;
import ca.uhn.fhir.batch2.maintenance.JobMaintenanceServiceImpl;
import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.jpa.api.config.JpaStorageSettings;
import ca.uhn.fhir.jpa.api.config.JpaStorageSettings.ClientIdStrategyEnum;
import ca.uhn.fhir.jpa.api.config.JpaStorageSettings.IdStrategyEnum;
import ca.uhn.fhir.jpa.api.config.ThreadPoolFactoryConfig;
import ca.uhn.fhir.jpa.batch2.JpaBatch2Config;
import ca.uhn.fhir.jpa.binary.api.IBinaryStorageSvc;
import ca.uhn.fhir.jpa.binstore.MemoryBinaryStorageSvcImpl;
import ca.uhn.fhir.jpa.config.HapiJpaConfig;
import ca.uhn.fhir.jpa.config.r4.JpaR4Config;
import ca.uhn.fhir.jpa.config.util.HapiEntityManagerFactoryUtil;
import ca.uhn.fhir.jpa.model.config.PartitionSettings;
import ca.uhn.fhir.jpa.model.config.SubscriptionSettings;
import ca.uhn.fhir.jpa.model.dialect.HapiFhirH2Dialect;
import ca.uhn.fhir.jpa.model.entity.StorageSettings.IndexEnabledEnum;
import ca.uhn.fhir.jpa.searchparam.config.NicknameServiceConfig;
import ca.uhn.fhir.jpa.searchparam.submit.config.SearchParamSubmitterConfig;
import ca.uhn.fhir.jpa.subscription.channel.config.SubscriptionChannelConfig;
import ca.uhn.fhir.jpa.subscription.submit.config.SubscriptionSubmitterConfig;
import jakarta.persistence.EntityManagerFactory;
import java.util.Properties;
import javax.sql.DataSource;
import org.apache.commons.dbcp2.BasicDataSource;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.Primary;
import org.springframework.orm.jpa.JpaTransactionManager;
import org.springframework.orm.jpa.LocalContainerEntityManagerFactoryBean;

/** What HAPI's JPA server needs to be told: R4, in a database in memory. */
@Configuration
@Import({
	JpaR4Config.class,
	HapiJpaConfig.class,
	JpaBatch2Config.class,
	Batch2JobsConfig.class,
	NicknameServiceConfig.class,
	SearchParamSubmitterConfig.class,
	SubscriptionChannelConfig.class,
	SubscriptionSubmitterConfig.class,
	ThreadPoolFactoryConfig.class,
})
class Storage {

	@Bean
	JpaStorageSettings storageSettings() {
		JpaStorageSettings settings = new JpaStorageSettings();
		// A test names its resources. Numbers that the server hands out could be those names.
		settings.setResourceClientIdStrategy(ClientIdStrategyEnum.ANY);
		settings.setResourceServerIdStrategy(IdStrategyEnum.UUID);
		settings.setEnforceReferentialIntegrityOnWrite(false);
		settings.setEnforceReferentialIntegrityOnDelete(false);
		settings.setAllowExternalReferences(true);
		settings.setAllowMultipleDelete(true);
		settings.setAllowContainsSearches(true);
		settings.setFilterParameterEnabled(true);
		settings.setIndexMissingFields(IndexEnabledEnum.ENABLED);
		settings.setExpungeEnabled(true);
		// A search finds what was written just now, an export begins just now.
		settings.setReuseCachedSearchResultsForMillis(null);
		settings.setEnableBulkExportJobReuse(false);
		settings.setJobFastTrackingEnabled(true);
		settings.setPreExpandValueSets(false);
		settings.setEnableTaskPreExpandValueSets(false);
		return settings;
	}

	@Bean
	PartitionSettings partitionSettings() {
		return new PartitionSettings();
	}

	@Bean
	SubscriptionSettings subscriptionSettings() {
		return new SubscriptionSettings();
	}

	/** A bulk export takes a step at each round of maintenance, which else comes once a minute. */
	@Bean
	SmartInitializingSingleton maintenance(IJobMaintenanceService maintenance) {
		return () -> ((JobMaintenanceServiceImpl) maintenance).setScheduledJobFrequencyMillis(200);
	}

	@Bean
	IBinaryStorageSvc binaryStorage() {
		return new MemoryBinaryStorageSvcImpl();
	}

	@Bean
	DataSource dataSource() {
		BasicDataSource database = new BasicDataSource();
		database.setDriver(new org.h2.Driver());
		database.setUrl("jdbc:h2:mem:fhir;DB_CLOSE_DELAY=-1");
		database.setMaxTotal(20);
		return database;
	}

	@Bean
	LocalContainerEntityManagerFactoryBean entityManagerFactory(
			ConfigurableListableBeanFactory beans, FhirContext fhir, JpaStorageSettings settings, DataSource database) {
		LocalContainerEntityManagerFactoryBean factory =
				HapiEntityManagerFactoryUtil.newEntityManagerFactory(beans, fhir, settings);
		Properties hibernate = new Properties();
		hibernate.put("hibernate.dialect", HapiFhirH2Dialect.class.getName());
		hibernate.put("hibernate.hbm2ddl.auto", "create");
		hibernate.put("hibernate.search.enabled", "false");
		factory.setPersistenceUnitName("fhir");
		factory.setDataSource(database);
		factory.setJpaProperties(hibernate);
		return factory;
	}

	@Bean
	@Primary
	JpaTransactionManager transactionManager(EntityManagerFactory factory) {
		return new JpaTransactionManager(factory);
	}
}
